"""verl: overrides such as ``actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4``; the actor's training."""

from __future__ import annotations

from typing import Final

from planner.jobs.imported import ImportedJob
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.megatron.tables import table_job
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.verl import fsdp
from planner.jobs.verl.overrides import ACTOR, LENGTHS, SAMPLES, pairs_of

_KEYS: Final = {  # by path, the option of the actor's training
    "actor_rollout_ref.model.path": "model.name",
    "trainer.nnodes": "nnodes",
    "trainer.n_gpus_per_node": "nproc-per-node",
    f"{ACTOR}ppo_mini_batch_size": "global-batch-size",
    f"{ACTOR}ppo_micro_batch_size_per_gpu": "micro-batch-size",
    f"{ACTOR}megatron.virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    f"{ACTOR}megatron.override_transformer_config.num_layers_in_first_pipeline_stage": (
        "decoder-first-pipeline-num-layers"
    ),
    f"{ACTOR}megatron.override_transformer_config.num_layers_in_last_pipeline_stage": (
        "decoder-last-pipeline-num-layers"
    ),
    f"{ACTOR}megatron.optimizer_offload": "verl.optimizer-offload",
    f"{ACTOR}megatron.param_offload": "verl.param-offload",
    f"{ACTOR}megatron.grad_offload": "verl.grad-offload",
    f"{ACTOR}use_kl_loss": "verl.use-kl-loss",
    f"{ACTOR}optim.override_optimizer_config.optimizer_cpu_offload": "optimizer-cpu-offload",
}
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
    lengths = [int(pairs[name]) for name in LENGTHS if pairs.get(name, "").isdecimal()]
    words |= {"seq-length": [str(sum(lengths))]} if len(lengths) == len(LENGTHS) else {}
    samples = pairs.get(SAMPLES, "1")
    if samples.isdecimal() and words.get("global-batch-size", [""])[0].isdecimal():  # of prompts
        words["global-batch-size"] = [str(int(words["global-batch-size"][0]) * int(samples))]
    absent = {"null", "none"}
    return table_job({name: one for name, one in words.items() if one[0].lower() not in absent}, _DIALECT, context)


READERS: Final = (
    CommandReader("verl", "overrides of verl on Megatron-Core", "megatron-lm", _recognises, _read),
    *fsdp.READERS,
)
