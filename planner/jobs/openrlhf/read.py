"""OpenRLHF's command lines as questions, with the dotted options of today and the plain ones of before 0.9."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.options import flag, number, present, text
from planner.jobs.reader import CommandReader, Context, Launch
from planner.jobs.transformers.arguments import Started, values_of
from planner.jobs.transformers.options import EFFECTS, training_options
from planner.jobs.transformers.read import Command, command_job
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import truth, whole, words

_PROGRAM: Final = re.compile(r"(?:.*/)?openrlhf[./]cli[./]train_(\w+?)(?:\.py)?")
_TASKS: Final = {"sft": "finetune", "dpo": "dpo", "rm": "reward", "kto": "kto", "prm": "finetune", "kd": "finetune"}
"""What its trainers learn; any other is PPO's or its kin's."""
_PLAIN: Final = {
    "model.model_name_or_path": "pretrain", "actor.model_name_or_path": "pretrain", "data.max_len": "max_len",
    "train.batch_size": "train_batch_size", "train.micro_batch_size": "micro_train_batch_size",
    "model.gradient_checkpointing_enable": "gradient_checkpointing",
    "actor.gradient_checkpointing_enable": "gradient_checkpointing", "model.pretrain_mode_enable": "pretrain_mode",
    "actor.num_nodes": "actor_num_nodes", "actor.num_gpus_per_node": "actor_num_gpus_per_node",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size", "ds.lora.rank": "lora_rank",
    "ds.lora.target_modules": "target_modules", "ds.lora.dropout": "lora_dropout",
    "train.dynamic_batch_enable": "use_dynamic_batch", "train.colocate_all": "colocate_all_models",
    "train.colocate_actor_ref": "colocate_actor_ref", "ref.offload": "ref_offload",
    "rollout.n_samples_per_prompt": "n_samples_per_prompt",
    "train.full_determinism_enable": "full_determinism",
}  # fmt: skip
"""Words of before by those of today; other dotted ones have lost only the part in front."""
_OF_TODAY: Final = frozenset({"param_dtype", "attn_implementation"})
"""Names that a command line has only since 16 bits and FlashAttention are what it runs with."""

OPTIONS: Final = training_options(
    text("pretrain", "model"),
    number("max_len", "seq_length"),
    text("micro_train_batch_size", "micro"),
    text("train_batch_size", "batch"),
    number("lora_rank", "rank", least=0),
    text("target_modules", "targets"),
    number("ring_attn_size", "cp", 1),
    text("attn_implementation", "attention"),
    text("optim", "optimizer"),
    flag("packing_samples", "packing"),
)
_EFFECTS: Final = {
    **EFFECTS,
    "use_dynamic_batch": "micro-batches hold as many tokens as fit, whole sequences of one size are priced",
    "colocate_all_models": "models that sample and judge share the devices: more memory",
    "colocate_actor_ref": "the reference model shares the devices: more memory",
    "ref_offload": "the reference model is on the host: less memory, a longer step",
    "deepcompile": "gathers and kernels are scheduled by a compiler: a shorter iteration",
    "enable_ema": "an average of the weights is kept: more memory",
    "experts_implementation": "other kernels of experts",
    "aux_loss_coef": "experts' losses on top: slightly longer",
}
_HARMLESS: Final = words("""
    action_* actor* adam.* adam_betas adam_offload advantage_* agent_* algo.* apply_chat_template async_* beta bf16
    chosen_key ckpt* ckpt.* critic* data.* dataset* disable_* dual_clip dump_* dynamic_* ema_* enable_*
    enable_prefix_caching entropy_* eps_* eval* freezing_* gamma generate_max_len grad_accum_dtype
    gradient_checkpointing_* init_kl_coef input_key input_template ipo kl_* l2 label_* lambd learning_rate
    load_checkpoint local_rank logger.* logging_* lora.* lora_alpha lr_* max_ckpt_* max_epochs max_norm max_samples
    max_tokens_per_gpu micro_rollout_batch_size min_lr_ratio model.* multiturn muon.* n_samples_per_prompt nll_*
    normalize_* num_episodes output_key overlap_comm packing* param_dtype policy_* pretrain_mode prompt_* ref*
    rejected_key remote_* reward* rollout.* rollout_* save* seed stage* temperature tokenizer_* top_* train.*
    use_ds_universal_ckpt use_kl_* use_ms use_tensorboard use_wandb value_* vllm* wandb* zpg
""")


def _document(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of DeepSpeed that it makes (``openrlhf.utils.deepspeed``)."""
    states = "cpu" if truth(values.get("adam_offload", False)) else "none"
    zero = {
        "stage": whole(values.get("zero_stage", 2)),
        "offload_optimizer": {"device": states},
        "reduce_bucket_size": "auto",
        "zero_hpz_partition_size": whole(values.get("zpg", 1)),
        "overlap_comm": bool(truth(values.get("overlap_comm", False))),
    }
    return {
        "train_batch_size": whole(values.get("train_batch_size", 128)),
        "zero_optimization": zero,
        _form(values): {"enabled": True},
        "tensor_parallel": {"autotp_size": whole(values.get("ds_tensor_parallel_size", 1))},
        "data_types": present(grad_accum_dtype=values.get("grad_accum_dtype")),
    }


def _form(values: Mapping[str, Any]) -> str:
    return "fp16" if values.get("param_dtype") == "fp16" else "bf16"


def _translated(micro: int) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Its options in the words of Transformers, beside DeepSpeed's configuration.

    Args:
        micro: sequences of a device where none are said.
    """

    def translated(values: Mapping[str, Any]) -> dict[str, Any]:
        made = {_PLAIN.get(name, re.sub(r"^(ds|train)\.", "", name)): value for name, value in values.items()}
        lengths = [whole(made.get(name)) for name in ("prompt_max_len", "generate_max_len")]
        if any(lengths):
            made.setdefault("max_len", sum(each or 1024 for each in lengths))
        today = bool(_OF_TODAY & set(made)) or any("." in name for name in values)
        if not {"attn_implementation"} & set(made):
            flash = today or truth(made.pop("flash_attn", False))
            made["attn_implementation"] = "flash_attention_2" if flash else "eager"
        if "param_dtype" in made:
            made[_form(made)] = True
        each = whole(made.pop("micro_train_batch_size", micro))
        made["deepspeed"] = {**_document(made), "train_micro_batch_size_per_gpu": each}
        if whole(made.get("lora_rank")):
            made |= {"use_peft": True, "target_modules": made.get("target_modules", "all-linear")}
        left = ("zero_stage", "train_batch_size", "ds_tensor_parallel_size")
        return {name: value for name, value in made.items() if name not in left}

    return translated


def _trainer(name: str) -> Trainer:
    return Trainer(
        "OpenRLHF", OPTIONS, harmless=_HARMLESS, effects=_EFFECTS, precision="bf16", switches=True, weights="masters",
        adapters="asked", double=True, seq_length=2048, translated=_translated(8 if name in _TASKS else 1),
    )  # fmt: skip


def _started(launch: Launch) -> tuple[int, str] | None:
    """Where its program stands in a command line, and which of its trainers it is."""
    found = ((at, _PROGRAM.fullmatch(word)) for at, word in enumerate(launch.words))
    return next(((at, one[1]) for at, one in found if one), None)


def _recognises(launch: Launch) -> bool:
    return _started(launch) is not None


def _read(launch: Launch, context: Context) -> ImportedJob:
    at, name = _started(launch) or (0, "")
    given = launch.words[at + 1 :]
    values = values_of(given, OPTIONS)
    start = Started(launch.words[:at], launch.words[at], given)
    pretrains = truth(values.get("pretrain_mode", values.get("model.pretrain_mode_enable", False)))
    task = "pretrain" if pretrains else _TASKS.get(name, "ppo")
    job = command_job(launch, context, _trainer(name), command=Command(start, values, None), task=task)
    sides = (("actor_num_nodes", "actor.num_nodes"), ("actor_num_gpus_per_node", "actor.num_gpus_per_node"))
    counts = [whole(values.get(old, values.get(new, usual))) for (old, new), usual in zip(sides, (1, 8), strict=True)]
    actors = {} if name in _TASKS else present(gpus=prod(one or 1 for one in counts))
    return joined(job, ImportedJob(actors))


READERS: Final = (CommandReader("openrlhf", "a command line of OpenRLHF", "", _recognises, _read),)
