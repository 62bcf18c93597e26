"""verl: overrides such as ``actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4``; the actor's training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.jobs.data import data
from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.megatron.tables import table_job
from planner.jobs.reader import CommandReader, Context, Launch, reader_of_tables
from planner.jobs.trainers.nested import leaves
from planner.jobs.values import at_path
from planner.jobs.verl import fsdp
from planner.jobs.verl.fsdp import ACTOR, LENGTHS, MODEL, SAMPLES, pairs_of

_KEYS: Final[Mapping[str, str]] = data("verl/words")["megatron"]
"""Options of the actor's training by path."""
_SAME: Final = (f"{ACTOR}megatron.override_transformer_config.", f"{ACTOR}megatron.")
"""What stands in front of Megatron's own names."""
_DIALECT: Final = dialect("verl")


def _recognises(launch: Launch) -> bool:
    return any(name.startswith(f"{ACTOR}megatron.") for name in pairs_of(launch))


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
    """The job of a configuration: as of a command line with all that it says, on the engine that it names.

    Raises:
        BadRequest: a value that is wrong or not priced.
    """
    core = at_path(document, f"{ACTOR}strategy") == "megatron"
    said = dict(leaves(document))
    program = "verl.trainer.main_ppo" if "actor_rollout_ref" in document else "verl.trainer.fsdp_sft_trainer"
    kept = {path: value for path, value in said.items() if core or ".megatron." not in path}
    launch = Launch(("python3", "-m", program, *(f"{path}={value}" for path, value in kept.items())))
    found = _read(launch, context) if core else fsdp.job_of(launch, context)
    given = "pins.micro_batch_size" in context.known
    if given or any("micro_batch_size" in path for path in kept if path.startswith((f"{ACTOR}ppo_", "data."))):
        return found
    return replace(found, missing=(*found.missing, "no micro-batch is given; --micro-batch-size gives it"))


def _is_file(document: Mapping[str, Any]) -> bool:
    tunes = {"data", "optim", "trainer"} <= set(document) and at_path(document, "model.partial_pretrain") is not None
    return tunes or isinstance(at_path(document, f"{MODEL}path"), str)


READERS: Final = (
    reader_of_tables("verl", "a configuration of verl", "", _is_file, _of_file),
    CommandReader("verl", "overrides of verl on Megatron-Core", "megatron-lm", _recognises, _read),
    *fsdp.READERS,
)
