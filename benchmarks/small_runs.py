"""Lines of ``train_small.py`` as ``run/1`` documents, which ``plan validate`` and ``plan calibrate`` read.

    python benchmarks/small_runs.py train.jsonl > runs.jsonl

What a word of a run means to the planner stands in ``changes``, read off the code of that script and nothing else. Of
runs with one name the last one counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TITLE = "benchmarks/train_small.py"
BACKENDS = {"flash": ["flash-2"], "cudnn": ["cudnn"], "math": ["unfused"]}
MODULES = "linear_qkv,linear_proj,linear_fc1,linear_fc2"


def model_of(name: str, size: Mapping[str, int], s: int) -> dict[str, Any]:
    """The decoder of a size."""
    head = size["h"] // size["heads"]
    found = {
        "name": f"decoder-{name}",
        "title": f"Decoder {size['layers']} x {size['h']}",
        "num_layers": size["layers"],
        "hidden_size": size["h"],
        "num_heads": size["heads"],
        "num_query_groups": size["kv_heads"],
        "head_dim": head,
        "ffn_hidden_size": size["f"],
        "gated_ffn": True,
        "activation": "swiglu",
        "vocab_size": size["vocabulary"],
        "seq_length": s,
        "norm": "rmsnorm",
    }
    if name == "moe":
        found["moe"] = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": size["f"]}
    return found


def changes_of(words: list[str]) -> dict[str, Any]:
    """How the script's training differs from PyTorch FSDP's as the planner has it."""
    compiled, full, foreign = "compile" in words, "autocast" in words, "hf" in words
    fused = not {"foreach", "loop"} & set(words)
    found: dict[str, Any] = {
        "stack.fused_elementwise": compiled,
        "stack.kernels.pytorch_rms_norm": not foreign,
        "stack.kernels.split_projections": ["qkv", "gate"],
        "stack.logits.cross_entropy_bytes": 4 if compiled else 12,
        "stack.gradients.accumulate_traffic": 12 if full else 6,
        "stack.host.calls_per_step": 0,  # nothing of a step is read
    }
    if foreign or not compiled:  # norms of a model's own cast to fp32
        found["stack.kernels.saved_tensors"] = ["gate", "norm"] if foreign else ["gate"]
    if not foreign:  # norms 2, products 7, rotary 12, attention, sums 2, activation 2; casts of 7 weights and 5 inputs
        found["stack.host.kernels_per_layer"] = 18 if compiled else 38 if full else 26
    found["stack.states.optimizer_traffic"] = 38 if fused else 92  # of fp32; the planner halves it for 16 bits
    if not full:  # weights, gradients and moments in 16 bits
        found |= {
            "stack.optimizer": "adam-bf16",
            "stack.states.weight_bytes": 2,
            "stack.states.optimizer_bytes": 8,
            "stack.gradients.gradient_bytes": 2,
        }
    for word, kernels in BACKENDS.items():
        if word in words:
            found["stack.attention_backend"] = kernels
            found["stack.fused_softmax"] = word != "math"
    return found


def document(line: Mapping[str, Any]) -> dict[str, Any]:
    """One line of results as a run."""
    words = line["id"].split()
    name, s, b = words[0], int(words[1][1:]), int(words[2][1:])
    accumulated = next((int(one[1:]) for one in words if one[0] == "a" and one[1:].isdigit()), 1)
    measured: dict[str, Any] = {"out_of_memory": bool(line.get("out_of_memory"))}
    found: dict[str, Any] = {
        "schema": "run/1",
        "id": "small-" + "-".join(words),
        "group": "small-decoders-h100",
        "source": {"title": TITLE, "date": "2026-11", "model": name},
        "request": {
            "model": model_of(name, line["size"], s),
            "gpus": 1,
            "cluster": "dgx-h100",
            "stack": "fsdp",
            "changes": changes_of(words),
            "global_batch_size": b * accumulated,
            "seq_length": s,
            "precision": "bf16",
            "pins": {
                "tp": 1,
                "pp": 1,
                "zero_stage": 0,
                "micro_batch_size": b,
                "recompute": "full" if "full" in words else "none",
            },
        },
        "measured": measured,
        "assumed": {"request.cluster": "a virtual machine with one H100 SXM and 16 processors, not a DGX"},
    }
    if {"lora", "peft"} & set(words):
        found["request"]["adapters"] = f"16:{MODULES}/{'32-bit' if 'peft' in words else '16-bit'}"
    said = [f"torch {line['torch']}, {line['device']}"]
    if "seconds" in line:
        measured["iteration_seconds"] = line["seconds"]
        if "allocated" in line:
            measured["peak_memory"] = {"bytes": line["allocated"], "kind": "allocated", "stage": 0}
            said.append(f"{line['reserved']} bytes reserved, {line['device_bytes']} of the device in use")
        low, high = (1e3 * line[end] for end in ("p10", "p90"))
        said.append(f"median of {line['steps']} steps, 10th and 90th percentile {low:.2f} and {high:.2f} ms")
        said.append(f"{1e3 * line['issue_seconds']:.1f} ms until the host had started a step")
        if line.get("same_batch"):
            said.append("every step took the same batch")
    found["unread"] = said
    return found


def lines(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Results by name, the last of each; runs that failed otherwise are left out."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            found[line["id"]] = line
    yield from (line for line in found.values() if "error" not in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    for line in lines(parser.parse_args().files):
        print(json.dumps(document(line)))


if __name__ == "__main__":
    main()
