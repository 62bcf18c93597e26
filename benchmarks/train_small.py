"""Train small decoders on one GPU in many ways and write what each step took and held, one JSON line a run.

    python benchmarks/train_small.py -o runs.jsonl --seconds 200

Runs are written as words, such as "1b s2048 b8 autocast flash full": sizes, then what differs from bf16 weights, what
PyTorch picks for attention, fused AdamW, one micro-batch a step, nothing recomputed, not compiled. They are ordered by
what is learnt from them in ``train_small.txt``; those that the output holds already are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as fn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
# hidden, layers, heads, heads of keys and values, feed-forward, words
SIZES = {
    "tiny": (64, 2, 4, 2, 128, 256),
    "tiny-moe": (64, 2, 4, 2, 128, 256),
    "125m": (768, 12, 12, 12, 2048, 32000),
    "350m": (1024, 24, 16, 16, 2816, 32000),
    "1b": (2048, 16, 32, 8, 8192, 32000),
    "1b-mha": (2048, 24, 16, 16, 5504, 32000),
    "1b-words": (2048, 16, 32, 8, 8192, 128256),
    "3b": (3072, 28, 24, 8, 8192, 32000),
    "moe": (1024, 12, 16, 16, 2816, 32000),
}
EXPERTS, CHOSEN = 8, 2
RUNS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


class Linear(nn.Linear):
    """A product without bias; with a rank, frozen, and two further narrow products that train."""

    def __init__(self, width, out, rank=0):
        super().__init__(width, out, bias=False)
        nn.init.normal_(self.weight, std=0.02)
        self.narrow = (
            nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, out, bias=False)) if rank else None
        )
        if rank:
            self.weight.requires_grad_(False)
            nn.init.zeros_(self.narrow[1].weight)

    def forward(self, x):
        y = super().forward(x)
        return y if self.narrow is None else y + 2.0 * self.narrow(x)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class Experts(nn.Module):
    """Two of eight networks for every token; products grouped by expert."""

    def __init__(self, h, f):
        super().__init__()
        self.router = Linear(h, EXPERTS)
        self.gate, self.up = (nn.Parameter(0.02 * torch.randn(EXPERTS, f, h)) for _ in range(2))
        self.down = nn.Parameter(0.02 * torch.randn(EXPERTS, h, f))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weight, expert = fn.softmax(self.router(flat).float(), dim=-1).topk(CHOSEN, dim=-1)
        order = expert.reshape(-1).argsort(stable=True)
        token = order // CHOSEN
        ends = torch.bincount(expert.reshape(-1), minlength=EXPERTS).cumsum(0).to(torch.int32)
        kind = torch.bfloat16
        rows, gate, up, down = (one.to(kind) for one in (flat[token], self.gate, self.up, self.down))

        def grouped(y, w):
            return torch._grouped_mm(y, w.transpose(1, 2), offs=ends)  # noqa: SLF001

        y = grouped(fn.silu(grouped(rows, gate)) * grouped(rows, up), down)
        y = y * weight.reshape(-1)[order].to(kind)[:, None]
        return torch.zeros_like(flat, dtype=kind).index_add(0, token, y).reshape(x.shape)


class Network(nn.Module):
    def __init__(self, h, f, rank):
        super().__init__()
        self.gate, self.up, self.down = Linear(h, f, rank), Linear(h, f, rank), Linear(f, h, rank)

    def forward(self, x):
        return self.down(fn.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, h, heads, kv, f, rank, experts):
        super().__init__()
        self.heads, self.kv, self.d = heads, kv, h // heads
        self.norm1, self.norm2 = nn.RMSNorm(h), nn.RMSNorm(h)
        self.q, self.k, self.v = Linear(h, h, rank), Linear(h, kv * self.d, rank), Linear(h, kv * self.d, rank)
        self.out = Linear(h, h, rank)
        self.network = Experts(h, f) if experts else Network(h, f, rank)

    def forward(self, x, cos, sin):
        b, s, h = x.shape
        y = self.norm1(x)
        q, k, v = (one(y).view(b, s, -1, self.d).transpose(1, 2) for one in (self.q, self.k, self.v))
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.network(self.norm2(x))


class Decoder(nn.Module):
    """Embedding, blocks as Llama has them, head; returns logits."""

    def __init__(self, size, s, words):
        super().__init__()
        h, layers, heads, kv, f, vocabulary = SIZES[size]
        rank = 16 if "lora" in words else 0
        self.again = "full" in words
        self.embedding = nn.Embedding(vocabulary, h)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(h, heads, kv, f, rank, size.endswith("moe")) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(h), Linear(h, vocabulary)
        if rank:
            for one in (self.embedding, self.head, self.norm, *(n for b in self.blocks for n in (b.norm1, b.norm2))):
                one.requires_grad_(False)
        angle = torch.outer(
            torch.arange(s).float(), 10000.0 ** (-torch.arange(0, h // heads, 2).float() / (h // heads))
        )
        turn = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", turn.cos(), persistent=False)
        self.register_buffer("sin", turn.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            args = (x, self.cos, self.sin)
            x = checkpoint(block, *args, use_reentrant=False) if self.again else block(*args)
        return self.head(self.norm(x))


def huggingface(size, s, words):
    """The same model out of Transformers, with PEFT's adapters where asked for."""
    from transformers import LlamaConfig, LlamaForCausalLM

    h, layers, heads, kv, f, vocabulary = SIZES[size]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=h,
        intermediate_size=f,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=max(s, 2048),
        attn_implementation="sdpa",
        use_cache=False,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    if "full" in words:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if "peft" in words:
        from peft import LoraConfig, get_peft_model

        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=targets, task_type="CAUSAL_LM"))
    return model


def cross_entropy(logits, labels):
    return fn.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.view(-1))


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
KINDS = {"foreach": {"foreach": True}, "loop": {"foreach": False}}


class Training:
    """A model, its optimizer and what a step does, by the words of a run."""

    def __init__(self, words):
        self.words, self.size, self.losses = words, words[0], []
        self.length, self.batch = (int(one[1:]) for one in words[1:3])
        self.accumulated = next((int(one[1:]) for one in words if one[0] == "a" and one[1:].isdigit()), 1)
        self.autocast, self.foreign, self.loss_of = "autocast" in words, "hf" in words, cross_entropy
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float32 if self.autocast else torch.bfloat16)
        with DEVICE:
            self.model = (huggingface if self.foreign else Decoder)(self.size, self.length, words)
        torch.set_default_dtype(torch.float32)
        self.model.train()
        if "compile" in words:  # every block for itself, and the loss, as torchtitan does
            for block in self.model.blocks:
                block.compile(dynamic=False)
            self.loss_of = torch.compile(cross_entropy, dynamic=False)
        self.trained = [one for one in self.model.parameters() if one.requires_grad]
        how = next((KINDS[one] for one in words if one in KINDS), {"fused": True})
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, weight_decay=0.1, **how)

    def attention(self):
        """The kernels that attention may pick from."""
        return next((sdpa_kernel(BACKENDS[one]) for one in self.words if one in BACKENDS), contextlib.nullcontext())

    def step(self):
        shape = (self.accumulated, self.batch, self.length + 1)
        tokens = torch.randint(SIZES[self.size][5], shape, device=DEVICE)  # none is seen twice
        inputs, labels = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
        total = torch.zeros((), device=DEVICE)
        for batch, wanted in zip(inputs, labels, strict=True):
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.autocast):
                loss = self.loss(batch, wanted)
            (loss / self.accumulated).backward()
            total += loss.detach() / self.accumulated
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(total)

    def loss(self, batch, wanted):
        if self.foreign:
            return self.model(input_ids=batch, labels=batch).loss
        return self.loss_of(self.model(batch), wanted)


def train(words):
    """One run: seconds of its steps, its memory, its loss."""
    one = Training(words)
    with one.attention():
        warm, each = waited(one.step, 3), waited(one.step, 1)
        count = max(8, min(40, round(2.0 / each))) if CUDA else 4
        seconds = sorted(timed(one.step, count))
        issue = [issued(one.step) for _ in range(3)]
    return {
        "seconds": statistics.median(seconds),
        "p10": seconds[len(seconds) // 10],
        "p90": seconds[-1 - len(seconds) // 10],
        "steps": count,
        "issue_seconds": statistics.median(issue),
        "warm_seconds": warm,
        "first_loss": float(one.losses[0]),
        "loss": float(one.losses[-1]),
        "finite": bool(torch.isfinite(torch.stack(one.losses)).all()),
        "parameters": sum(part.numel() for part in one.model.parameters()),
        "trained": sum(part.numel() for part in one.trained),
    }


def waited(step, count):
    """Seconds of some steps together, until the device is done."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return time.perf_counter() - start


def timed(step, count):
    """Seconds of every one of some steps, started without waiting for those before."""
    marks = [torch.cuda.Event(enable_timing=True) if CUDA else None for _ in range(count + 1)]
    clock = []
    for mark in marks[:-1]:
        mark.record() if mark else clock.append(time.perf_counter())
        step()
    marks[-1].record() if CUDA else clock.append(time.perf_counter())
    wait()
    if CUDA:
        return [one.elapsed_time(other) / 1e3 for one, other in itertools.pairwise(marks)]
    return [other - one for one, other in itertools.pairwise(clock)]


def issued(step):
    """Host seconds to start a step on an idle device."""
    wait()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def wait():
    if CUDA:
        torch.cuda.synchronize()


def run(words):
    """One run with its memory, or how it failed."""
    gc.collect()
    torch._dynamo.reset()  # noqa: SLF001
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    found, start = {}, time.perf_counter()
    try:
        found = train(words)
    except torch.OutOfMemoryError as error:
        found = {"out_of_memory": True, "said": str(error).splitlines()[0][:300]}
    except Exception as error:  # noqa: BLE001  the others still run
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    torch.set_default_dtype(torch.float32)
    if CUDA:
        free, total = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        found |= {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "device_bytes": total - free,
            "retries": stats.get("num_alloc_retries"),
        }
    return found | {"wall": round(time.perf_counter() - start, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("train.jsonl"))
    parser.add_argument("--seconds", type=float, default=200.0, help="begins no run after these")
    parser.add_argument("--runs", default=RUNS, help="runs to do, one a line (or separated by ;)")
    options = parser.parse_args()
    start, done = time.perf_counter(), []
    if options.output.exists():
        done = [json.loads(line)["id"] for line in options.output.read_text().splitlines()]
    about = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if CUDA else "cpu"}
    shown = ("seconds", "issue_seconds", "allocated", "error", "out_of_memory", "wall")
    for line in options.runs.replace(";", "\n").splitlines():
        if not line.strip() or line in done:
            continue
        if time.perf_counter() - start > options.seconds:
            break
        words = line.split()
        size = dict(zip(("h", "layers", "heads", "kv_heads", "f", "vocabulary"), SIZES[words[0]], strict=True))
        found = {"id": line, **about, "size": size} | run(words)
        with options.output.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(line, {name: found[name] for name in shown if name in found}, flush=True)


if __name__ == "__main__":
    main()
