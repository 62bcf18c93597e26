"""The command lines and files of ms-swift's Transformers half as questions, as of ms-swift 4.6."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planner.jobs.imported import ImportedJob, joined
from planner.jobs.options import number, text
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch
from planner.jobs.transformers.arguments import started
from planner.jobs.transformers.options import EFFECTS, HARMLESS, training_options
from planner.jobs.transformers.read import command_job, command_of, file_job
from planner.jobs.transformers.trainer import Trainer, zero
from planner.jobs.values import truth, words

_TASKS: Final = {"sft": "finetune", "pt": "pretrain", "rlhf": "dpo"}
_PROGRAMS: Final = frozenset({"swift", "swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"})
_SCRIPTS: Final = ("cli/sft.py", "cli/pt.py", "cli/rlhf.py", "llm_sft.py", "llm_dpo.py")
OPTIONS: Final = training_options(
    text("model", older=("model_id_or_path", "model_name_or_path")),
    number("max_length", "seq_length", least=-1),
    number("per_device_train_batch_size", "micro_batch_size", 1, older=("batch_size",)),
    text("attn_impl", "attention", older=("use_flash_attn", "attn_implementation")),
    number("lora_rank", "rank", least=0),
    text("target_modules", "targets", older=("lora_target_modules",)),
    number("quant_bits", "bits", older=("quantization_bit",)),
    text("rlhf_type", "stage"),
    text("torch_dtype", "weights", older=("dtype",)),
    number("deepspeed_autotp_size", "tp", 1),
    number("sequence_parallel_size", "cp", 1),
)
_EFFECTS: Final = {
    **EFFECTS,
    "padding_free": "sequences are packed without padding; they are priced at full length",
    "teacher_model": "a teacher model runs too: more memory and time",
    "freeze_llm": "the language model is frozen: less memory",
    "vit_gradient_checkpointing": "there is a vision tower too: more time and memory",
    "max_pixels": "images become tokens of a vision tower: more time and memory",
    "use_vllm": "vLLM generates samples, on these GPUs or others: more time and memory",
    "lisa_activated_layers": "only a few layers train at a time: less memory",
    "sleep_level": "vLLM's weights leave the GPU during the step",
    "zero_hpz_partition_size": "each node holds a second copy for the backward pass: less communication",
    "freeze_parameters_ratio": "frozen weights have no gradients and no optimizer states: less memory, a shorter "
    "backward pass",
}
_HARMLESS: Final = HARMLESS + words("""
    acc_strategy adalora_* add_version agent_template aligner_* async_* beta boft_* cached_* check_model columns
    create_checkpoint_symlink custom_* dataset_* ddp_timeout device_map dynamic_sample enable_*_loss epsilon* eval_*
    experts_impl external_* fourier_* freeze_aligner freeze_vit galore_* hub_* ignore_args_error init_* interleave_*
    is_binary_loss_scale label_* lazy_tokenize llamapro_* lmbda load_* log_* logging_* lora_alpha lora_bias
    lora_dtype lora_lr_ratio loss_scale loss_type max_completion_length max_epochs max_new_tokens metric* model_*
    move_* new_special_tokens norm_bbox num_generations num_iterations num_labels offload_* overlong* packing_*
    problem_type quant_method ref_model_* reft_* repetition_* report_to response_prefix reward_* rlhf_* rope_scaling
    rpo_alpha save_* sft_alpha sft_type shuffle_* soft_* split_dataset_ratio steps_per_generation stopping_strategy
    strict swanlab_* system task_type teacher_deepspeed temperature template_backend top_* train_dataset* train_type
    truncation_strategy tuner_backend tuner_type use_chat_template use_hf use_rslora val_dataset val_dataset_*
    vera_* vit_* vllm_*
""")


def _translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options that stand for others here: adapters train unless said, in the format of the products."""
    made = dict(values)
    if not {"tuner_type", "train_type", "sft_type"} & set(made):
        made["tuner_type"] = "lora"
    made.setdefault("target_modules", made.get("lora_target_modules", "all-linear"))
    made.setdefault("torch_dtype", "float16" if truth(values.get("fp16", False)) else "bfloat16")
    return made


SWIFT: Final = Trainer(
    "ms-swift",
    OPTIONS,
    harmless=_HARMLESS,
    effects=_EFFECTS,
    double=True,
    precision="bf16",
    switches=True,
    weights="products",
    adapters="unless",
    recompute=True,
    batch=16,
    deepspeed={
        "zero0": zero(0),
        "zero1": zero(1, reduce_bucket_size=2e8, overlap_comm=False),
        "zero2": zero(2, reduce_bucket_size=2e8, overlap_comm=False),
        "zero2_offload": zero(2, offload=True, reduce_bucket_size=2e8, overlap_comm=False),
        "zero3": zero(3, overlap_comm=False, reduce_bucket_size="auto"),
        "zero3_offload": zero(3, offload=True, overlap_comm=False, reduce_bucket_size="auto"),
        "default-zero2": zero(2, reduce_bucket_size=2e8, overlap_comm=False),
        "default-zero3": zero(3, overlap_comm=False, reduce_bucket_size="auto"),
    },
    fsdp={"fsdp2": {"version": 2, "reshard_after_forward": True, "activation_checkpointing": True}},
    translated=_translated,
)


def _recognises(launch: Launch) -> bool:
    start = started(launch.words)
    if Path(start.program).name == "swift":
        return bool(start.words) and start.words[0] in _TASKS
    return start.program in _PROGRAMS or start.program.endswith(_SCRIPTS)


def _read(launch: Launch, context: Context) -> ImportedJob:
    start = started(launch.words)
    own = Path(start.program).name == "swift"
    command = command_of(launch, context, SWIFT, start.words[1:] if own else start.words)
    kind = start.words[0] if own else start.name.rpartition(".")[2]
    found = command_job(launch, context, SWIFT, command=command, task=_TASKS.get(kind, "finetune"))
    alone = own and "NPROC_PER_NODE" not in launch.environment and found.fields.get("gpus", 1) > 1
    effect = "one process places the layers on its GPUs one after another; data parallelism is priced"
    return joined(found, ImportedJob(unpriced=(effect,))) if alone else found


def _recognises_file(file: JobFile) -> bool:
    keys = set(file.document or ())
    return "model" in keys and bool(keys & {"tuner_type", "train_type", "sft_type", "rlhf_type", "split_dataset_ratio"})


def _read_file(file: JobFile, context: Context) -> ImportedJob:
    return file_job(file, context, SWIFT, "finetune")


READERS: Final = (
    CommandReader("swift", "a command line of ms-swift", "", _recognises, _read),
    DocumentReader("swift", "a configuration of ms-swift", "", _recognises_file, _read_file),
)
