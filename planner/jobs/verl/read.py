"""verl: overrides of the actor's training on FSDP or Megatron-Core, of supervised fine-tuning, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

from costmodels.stack.finetune import GENERATING
from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.configurations import table_job
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.options import present
from planner.jobs.reader import CommandReader, Context, Launch, reader_of_tables
from planner.jobs.shell.processes import processes
from planner.jobs.trainers.family import by_ulysses, full_shard, leaves, trainer
from planner.jobs.transformers.arguments import Started, overrides_of
from planner.jobs.transformers.read import Command, command_job
from planner.jobs.values import at_path, data, truth, whole

ACTOR: Final = "actor_rollout_ref.actor."
MODEL: Final = "actor_rollout_ref.model."
LENGTHS: Final = ("data.max_prompt_length", "data.max_response_length")
SAMPLES: Final = "actor_rollout_ref.rollout.n"
"""Responses to every prompt, each of them a sequence of the actor's batch."""
_SFT: Final = ("verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer")
_SEQUENCES, _PARTS, _WHOLE, _MICRO = 256, (512, 512), 1024, 4
"""Of a batch, tokens of prompt and response or of a whole sequence, and sequences that a device tunes on at a time."""
_TRAINER: Final = trainer("verl", alone=True)


def pairs_of(launch: Launch) -> dict[str, str]:
    """The overrides of a command line."""
    return {name: value.strip("'\"") for name, value in overrides_of(launch.words).items()}


def _program(launch: Launch) -> str:
    return next((word for word in launch.words if word.startswith(("verl.", "recipe.")) or "main_ppo" in word), "")


def _is_fsdp(launch: Launch) -> bool:
    pairs = pairs_of(launch)
    sft = _program(launch) in _SFT and any(name.startswith(("data.", "model.")) for name in pairs)
    actor = any(name.startswith((ACTOR, MODEL)) for name in pairs)
    return sft or (actor and not any(".megatron." in name for name in pairs))


def _fsdp_job(launch: Launch, context: Context) -> ImportedJob:
    """The job of overrides of the actor, or of supervised fine-tuning."""
    pairs, program = pairs_of(launch), _program(launch)
    sft = program in _SFT
    made: dict[str, Any] = {
        name: pairs[path] for path, name in data("verl/words")["sft" if sft else "fsdp"].items() if path in pairs
    }
    gpus = processes(launch) if sft else prod(whole(pairs.get(f"trainer.{of}")) or usual for of, usual in _NODES)
    batch = _batch(made, pairs, gpus, sft=sft)
    kept = truth(made.get("reshard", True)) is False
    sharded = full_shard(kept=kept, offload=made.get("offload_policy", False))
    made |= {"bf16": True, "attn_implementation": "flash_attention_2", "fsdp": sharded}
    if not whole(made.get("lora_r", 0)):
        made = {name: value for name, value in made.items() if not name.startswith("lora_")}
    else:
        made |= {"use_peft": True, "lora_target_modules": made.get("lora_target_modules", "all-linear")}
    estimator = pairs.get("algorithm.adv_estimator", "ppo").lower()
    task = "finetune" if sft else estimator if estimator in GENERATING else "ppo"
    start = Started((*launch.words[:1], "-m"), program, launch.words[1:])
    job = by_ulysses(command_job(launch, context, _TRAINER, command=Command(start, made, None), task=task))
    degree = whole(made.get("fsdp_size")) or -1
    pins = {name: pin for name, pin in job.pins.items() if name != "steps"}
    pins |= {"sharding_degree": degree} if degree > 1 and degree != gpus else {}
    fields = {**job.fields, **present(global_batch_size=batch, gpus=gpus)}
    return replace(job, fields=fields, pins=pins)


_NODES: Final = (("nnodes", 1), ("n_gpus_per_node", 8))


def _batch(made: dict[str, Any], pairs: Mapping[str, str], gpus: int | None, *, sft: bool) -> int:
    """Sequences of an iteration; those of a device, and the tokens of one, are put among the options."""
    each = 1 if sft else whole(pairs.get(SAMPLES)) or 1
    sequences = (whole(made.get("batch")) or _SEQUENCES) * each
    replicas = max(1, (gpus or 1) // (whole(made.get("sequence_parallel_size")) or 1))
    if (of_all := whole(made.get("micro_of_all"))) and gpus:
        made.setdefault("per_device_train_batch_size", max(1, of_all // replicas))
    made.setdefault("per_device_train_batch_size", _MICRO if sft else 1)
    if sft:
        made.setdefault("max_length", _WHOLE)
    else:
        parts = zip(LENGTHS, _PARTS, strict=True)
        made["max_length"] = sum(whole(pairs.get(name)) or usual for name, usual in parts)
    return sequences


_KEYS: Final[Mapping[str, str]] = data("verl/words")["megatron"]
"""Options of the actor's training by path."""
_SAME: Final = (f"{ACTOR}megatron.override_transformer_config.", f"{ACTOR}megatron.")
"""What stands in front of Megatron's own names."""
_DIALECT: Final = dialect("verl")


def _read(launch: Launch, context: Context) -> ImportedJob:
    words: Words = {}
    pairs = pairs_of(launch)
    for name, value in pairs.items():
        front = next((one for one in _SAME if name.startswith(one)), "")
        if name in _KEYS:
            words[_KEYS[name]] = [value]
        elif front:
            words[name.removeprefix(front).replace("_", "-")] = [value]
    if words.get("peft.dim", ["0"])[0] != "0":
        words["peft"] = ["true"]
    else:  # no adapters, whatever modules would have them
        words = {name: one for name, one in words.items() if not name.startswith("peft.")}
    lengths = [int(pairs[name]) for name in LENGTHS if pairs.get(name, "").isdecimal()]
    words |= {"seq-length": [str(sum(lengths))]} if len(lengths) == len(LENGTHS) else {}
    samples = pairs.get(SAMPLES, "1")
    if samples.isdecimal() and words.get("global-batch-size", [""])[0].isdecimal():  # of prompts
        words["global-batch-size"] = [str(int(words["global-batch-size"][0]) * int(samples))]
    absent = {"null", "none"}
    return table_job({name: one for name, one in words.items() if one[0].lower() not in absent}, _DIALECT, context)


def _of_file(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a configuration: as of a command line with all that it says, on the engine that it names."""
    core = at_path(document, f"{ACTOR}strategy") == "megatron"
    said = dict(leaves(document))
    program = "verl.trainer.main_ppo" if "actor_rollout_ref" in document else "verl.trainer.fsdp_sft_trainer"
    kept = {path: value for path, value in said.items() if core or ".megatron." not in path}
    launch = Launch(("python3", "-m", program, *(f"{path}={value}" for path, value in kept.items())))
    found = _read(launch, context) if core else _fsdp_job(launch, context)
    given = "pins.micro_batch_size" in context.known
    if given or any("micro_batch_size" in path for path in kept if path.startswith((f"{ACTOR}ppo_", "data."))):
        return found
    return replace(found, missing=(*found.missing, "no micro-batch is given; --micro-batch-size gives it"))


def _is_file(document: Mapping[str, Any]) -> bool:
    tunes = {"data", "optim", "trainer"} <= set(document) and at_path(document, "model.partial_pretrain") is not None
    return tunes or isinstance(at_path(document, f"{MODEL}path"), str)


READERS: Final = (
    reader_of_tables("verl", "a configuration of verl", "", _is_file, _of_file),
    CommandReader(
        "verl", "overrides of verl on Megatron-Core", "megatron-lm",
        lambda launch: any(name.startswith(f"{ACTOR}megatron.") for name in pairs_of(launch)), _read,
    ),
    CommandReader("verl", "overrides of verl on FSDP", "", _is_fsdp, _fsdp_job),
)  # fmt: skip
