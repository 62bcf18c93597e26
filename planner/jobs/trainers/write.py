"""Recipes of the trainers that are built on Transformers', each with the file that shards its states.

A row has what starts a trainer, its words for tasks, and what it says its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from costmodels.names import SHARDED_PARAMETERS
from planner.frameworks.registry import framework_of
from planner.jobs.accelerate import write as accelerate
from planner.jobs.deepspeed import write as deepspeed
from planner.jobs.deepspeed.options import CARRIED as DEEPSPEED_CARRIED
from planner.jobs.job import Export, Job, Write, broken, refuse, uncarried_choices
from planner.jobs.launchers import shell
from planner.jobs.options import applicable
from planner.jobs.trainers.recipes import AXOLOTL, LLAMA_FACTORY, SWIFT, TRL
from planner.jobs.transformers.trainer import Trainer
from planner.jobs.values import data, words
from planner.jobs.yaml_text import yaml_text

FILE: Final = "recipe.yaml"
CARRIED: Final = (
    *("loss", "adapters", "base_precision", "task", "main_grads", "stack.attention_backend"),
    *DEEPSPEED_CARRIED,
)
"""Choices and paths of changes that a recipe or its sharding file has."""
_OPTIMIZERS: Final[Mapping[str, str]] = data("transformers/words")["written"]["optimizers"]
_MODULES: Final[Mapping[str, str]] = data("transformers/words")["written"]["modules"]
_BITS: Final = {"nf4": 4, "nf4-double": 4, "fp4": 4, "fp4-double": 4, "int8": 8}
_ATTENTION: Final = {"unfused": "eager", "flash-2": "flash_attention_2", "flash-3": "flash_attention_3"}
_FORMATS: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class Written:
    """How a trainer is written.

    Attributes:
        name: of the target.
        trainer: whose options they are.
        programs: what starts it, by the framework whose file shards its states; "{task}" is what is trained.
        tasks: its words for what is trained.
        splits: whether it splits sequences over ranks.
        finished: its document, of the one that the options make.
        file: what its recipe is called; "{task}" as above.
    """

    name: str
    trainer: Trainer
    programs: Mapping[str, tuple[str, ...]]
    tasks: Mapping[str, str]
    splits: bool = False
    finished: Callable[[dict[str, Any], Job], dict[str, Any]] = lambda document, _: document
    file: str = FILE


def written(job: Job, how: Written) -> Export:
    """The recipe, and its file of DeepSpeed or Accelerate."""
    by = "deepspeed" if framework_of(job.stack) == "deepspeed" else "accelerate"
    _refuse(job, how, by)
    task = str(job.asked("task") or "finetune")
    sharding = deepspeed.deepspeed(job, "0.19") if by == "deepspeed" else accelerate.accelerate(job, "1.15")
    name, text = next(iter(sharding.files.items()))
    document = how.finished(how.trainer.options.document(_values(job, how, by, task)), job)
    program = tuple(word.format(task=how.tasks[task]) for word in how.programs[by])
    launcher = {
        "accelerate": f"accelerate launch --config_file {name}",
        "deepspeed": f"torchrun --nproc-per-node {job.gpus_per_node}",
    }
    start = f"start it on every machine with {launcher[by]} {' '.join(program)}"
    remarks = (start, *_remarks(job, how, by), *uncarried_choices(job.plan.request, by, CARRIED))
    files = {
        how.file.format(task=how.tasks[task]): shell.commented(how.trainer.title, remarks, yaml_text(document)),
        name: text,
    }
    return Export(files=files, program=program, environment=sharding.environment, remarks=remarks)


def _refuse(job: Job, how: Written, by: str) -> None:
    at, task, optimizer = job.strategy, str(job.asked("task") or "finetune"), job.switches.optimizer
    base, other = str(job.asked("base_precision") or ""), next(iter(how.programs))
    reasons = [
        (at.pp > 1, f"no pipeline; pp is {at.pp}"),
        (at.tp > 1, f"no tensor ranks {at.tp}"),
        (at.ep > 1, f"no expert ranks {at.ep}"),
        (at.cp > 1 and not how.splits, f"no context ranks {at.cp}"),
        (job.precision not in _FORMATS, f"no precision {job.precision}; {', '.join(_FORMATS)} work"),
        (optimizer not in _OPTIMIZERS, f"no optimizer {optimizer}; {', '.join(_OPTIMIZERS)} work"),
        (base.startswith("fp4"), f"no weights in {base}; nf4 and int8 work"),
        (task not in how.tasks, f"no task {task}; {', '.join(how.tasks)} work"),
    ]
    unlike = f"{by} shards its states; {how.name} is written for {other}; plan again with --for {other}"
    lacks = ((True, lack) for lack in broken(job, by))
    refuse(f"{how.name} cannot start this plan:", chain(reasons, lacks, [(by not in how.programs, unlike)]))


def _values(job: Job, how: Written, by: str, task: str) -> dict[str, Any]:
    """Values by the fields of its options; what it does unasked is said too where it may be switched off."""
    at, known = job.strategy, {row.field for row in how.trainer.options}
    backend = (job.asked("changes") or {}).get("stack.attention_backend")
    attention = next((word for kernel, word in _ATTENTION.items() if kernel in list(backend or [])[:1]), None)
    whole = job.adapters is None or job.asked("base_precision") == "fp32"  # adapters may train on narrower weights
    values = {
        "model": job.hub or job.model.name,
        "seq_length": job.seq_length,
        "micro_batch_size": at.micro_batch_size,
        "steps": at.num_microbatches,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "recompute": at.recompute == "full",
        "optimizer": _OPTIMIZERS[job.switches.optimizer],
        "attention": attention,
        "liger": True if job.switches.loss == "fused" else None,
        "deepspeed": deepspeed.FILE if by == "deepspeed" else None,
        "weights": ("float32" if whole else "bfloat16") if by == "accelerate" else None,
        "stage": how.tasks[task],
        "cp": at.cp if at.cp > 1 else None,
        **_adapters(job),
    }
    return {name: value for name, value in values.items() if name in known}


def _adapters(job: Job) -> dict[str, Any]:
    found, base = job.adapters, str(job.asked("base_precision") or "")
    if found is None:
        return {"method": "full"}
    names = [name for module in found.modules for name in words(_MODULES[module])]
    bits = _BITS.get(base)
    return {
        "method": "lora",
        "use_peft": True,
        "rank": found.rank,
        "targets": ",".join(names),
        "lora_dropout": 0.05 if found.dropout else 0.0,
        "bits": bits,
        "four_bits": True if bits == 4 else None,
        "eight_bits": True if bits == 8 else None,
    }


def _remarks(job: Job, how: Written, by: str) -> tuple[str, ...]:
    model, at = how.trainer.options["model"].word, job.strategy
    stack = "deepspeed" if by == "deepspeed" else "transformers"
    own, kernels = "16-bit" if by == "deepspeed" else "autocast", job.adapters.kernels if job.adapters else ""
    return applicable({
        f"{model}: {job.model.name} is the catalogue's name; write that of the hub, or a path": not job.hub,
        "give it its data": True,
        f"adapters are priced with kernels {kernels}; this trainer uses PEFT's, {own}": kernels not in {"", own},
        f"{job.gpus} processes take part, {job.gpus_per_node} on a node": True,
        f"kernels, overlap and dropout were priced for stack {job.stack}; --stack {stack} prices those of this "
        "trainer": (
            job.stack != stack
        ),
        "every machine needs its own rank and the first one's address": job.node_count > 1,
        f"ZeRO stage 3 keeps a second copy on every node of {job.gpus_per_node}": (
            at.zero_stage == SHARDED_PARAMETERS and job.switches.zero_hpz
        ),
    })  # fmt: skip


_DATA: Final = "put-yours-here"
_TORCH_FORMATS: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _without(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _doubled(job: Job) -> bool:
    """Whether the constants of frozen weights of 4 bits are quantised too."""
    return "double" in str(job.asked("base_precision"))


def _storage(job: Job) -> dict[str, Any]:
    """What frozen weights of 4 bits are packed into: bytes, which are usual, are not sharded."""
    sharded = job.strategy.zero_stage == SHARDED_PARAMETERS and _BITS.get(str(job.asked("base_precision"))) == 4
    return {"bnb_4bit_quant_storage": "bfloat16"} if sharded else {}


def _of_trl(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Without what its command says: the task; TRL knows adapters by use_peft alone."""
    left = _without(document, {"stage", "finetuning_type", "quantization_bit"})
    modules = left.pop("lora_target_modules", None)
    left |= ({"use_bnb_nested_quant": True} if _doubled(job) else {}) | _storage(job)
    return left | ({"lora_target_modules": modules.split(",")} if modules else {}) | {"dataset_name": _DATA}


def _of_llamafactory(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Recomputation is what it disables; adapters and their formats have words of their own."""
    left = _without(document, {"use_peft", "load_in_4bit", "load_in_8bit", "gradient_checkpointing", "dtype"})
    disabled = {"disable_gradient_checkpointing": True} if job.strategy.recompute == "none" else {}
    doubled = {"double_quantization": _doubled(job)} if "quantization_bit" in left else {}
    return {**left, **disabled, **doubled, "do_train": True, "dataset": _DATA, "template": _DATA}


def _of_axolotl(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Adapters by their kind, none where all weights train; modules as a list."""
    left = {name: value for name, value in document.items() if value != ""}
    left = _without(left, {"use_peft", "finetuning_type", "quantization_bit", "dtype"})
    modules, four = left.pop("lora_target_modules", None), left.get("load_in_4bit")
    kind = {"adapter": "qlora" if four else "lora"}
    adapter = {**kind, "lora_alpha": 2 * left["lora_r"], "lora_target_modules": modules.split(",")} if modules else {}
    adapter |= {"bnb_config_kwargs": {"bnb_4bit_use_double_quant": _doubled(job)}} if four else {}
    return {**_without(left, {"adapter"}), **adapter, "datasets": [{"path": _DATA, "type": "alpaca"}]}


def _of_swift(document: dict[str, Any], job: Job) -> dict[str, Any]:
    """Its words for adapters and for the format of weights, which is that of the products."""
    left = _without(document, {"use_peft", "load_in_4bit", "load_in_8bit", "rlhf_type", "finetuning_type"})
    modules, task = left.pop("target_modules", None), str(job.asked("task") or "finetune")
    named = {"target_modules": modules.split(",")} if modules else {}
    bits = {"quant_method": "bnb", "bnb_4bit_use_double_quant": _doubled(job)} if "quant_bits" in left else {}
    bits |= _storage(job)
    own = {"tuner_type": "lora" if modules else "full", "torch_dtype": _TORCH_FORMATS[job.precision]}
    paired = {"rlhf_type": task} if HOW["swift"].tasks[task] == "rlhf" else {}
    return {**left, **own, **named, **bits, **paired, "dataset": [_DATA]}


_TRL: Final = ("-m", "trl.scripts.{task}", "--config", "{task}.yaml")
_FACTORY: Final = ("src/train.py", FILE)
HOW: Final[Mapping[str, Written]] = {one.name: one for one in (
    Written("trl", TRL, {"deepspeed": _TRL, "accelerate": _TRL},
            {"finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "reward"}, finished=_of_trl, file="{task}.yaml"),
    Written("llamafactory", LLAMA_FACTORY, {"deepspeed": _FACTORY, "accelerate": _FACTORY},
            {"pretrain": "pt", "finetune": "sft", "dpo": "dpo", "kto": "kto", "reward": "rm"},
            finished=_of_llamafactory),
    Written("axolotl", AXOLOTL, {"deepspeed": ("-m", "axolotl.cli.train", FILE)},
            {"pretrain": "", "finetune": "", "dpo": "dpo", "kto": "kto", "orpo": "orpo", "simpo": "simpo"},
            finished=_of_axolotl),
    Written("swift", SWIFT, {"deepspeed": ("-m", "swift.cli.{task}", "--config", FILE)},
            {"pretrain": "pt", "finetune": "sft", **dict.fromkeys(("dpo", "kto", "orpo", "simpo"), "rlhf")},
            splits=True, finished=_of_swift),
)}  # fmt: skip
"""How each is written; a recipe of TRL does not say what is trained: its name does, and the command."""


def recipe(name: str) -> Write:
    """What writes the recipes of a trainer, with the file that shards its states."""
    return lambda job, _version: written(job, HOW[name])
