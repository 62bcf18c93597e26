"""Which stack stands for the framework of a measured run: by its name and date, else by its next of kin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodels.stack.stack import stack_names
from run_words import heard as re
from run_words.dated import CURRENT, container, dated, month, years
from run_words.variants import accelerator_name

Row = Mapping[str, Any]

COMPILED = ("tpu", "trainium")
"""How devices are called that XLA alone, or a compiler behind its interface, makes programs for."""

FINE_TUNERS = r"transformers|\b(trl|peft|axolotl|unsloth|xtuner|ms-?swift|oumi)\b|llama[- ]?factory|sfttrainer"
"""Programs that train Transformers' models, whose frozen weights they load in 16 bits."""

STACKS: tuple[tuple[str, str], ...] = (
    (r"megascale", "megascale"),
    (r"yuan[- ]?2", "yuan2"),
    (r"\bhai[ -]?llm", "deepseek"),
    (r"automodel", "torchtitan"),
    (r"gpt-?neox", "gpt-neox"),
    (r"megatron(-lm)? ?(-|/|\+|&|and|with|) ?deepspeed|deepspeed ?(/|\+|&|and|with) ?megatron", "megatron-deepspeed"),
    (r"deepspeedexamples|deepspeed 3d", "megatron-deepspeed"),
    (r"^(?!.*(deepspeed|megatron|torchtitan|fsdp2)).*fsdp", "fsdp"),
    (r"^(?!.*(deepspeed|megatron|\bnemo\b)).*(fsdp2|fully_shard)", "torchtitan"),
    (r"without model parallelism|hf transformers|deepspeed|arctic ?training", "deepspeed"),
    (r"sail-sg", "vocabulary-parallel"),
    (r"^megatron-lm\b.*\bnemo\b.*container", "megatron-lm"),
    (r"nemo (26\.(0[6-9]|1\d)|2[7-9]\.)", "nemo-26.06"),
    (r"nemo[- ]megatron(?!.*20(2[3-9]|[3-9]\d))|bignlp|nemo 2[0-2]\.", "megatron-lm-2022"),
    (r"megatron-bridge|\bnemo\b", "nemo"),
    (r"megatron[- ]core|mcore|core[ _-][rv]?0\.|megatron-lm v0|modellink|mindspeed|ascendspeed", "megatron-core"),
    (r"megatron-swift|megatron-patch|megatron-fsdp|^(?!.*(titan|maxtext|jax)).*primus", "megatron-core"),
    (r"mindformers|mindspore", "mindformers"),
    (r"nanotron|picotron", "nanotron"),
    (r"aleph alpha", "aleph-alpha"),
    (r"torchtitan|torchtune|fsdp2|fully_shard|olmo-core|veomni", "torchtitan"),
    (r"fsdp|foundry|composer|fairscale|fairseq|metaseq|\bolmo\b|lit-?gpt|modalities", "fsdp"),
    (r"paddle|fleetx", "paddle"),
    (r"internevo|internlm|loongtrain", "internevo"),
    (r"neuron|\bnxd|torch[-_/ ]?xla", "maxtext"),
    (r"maxtext|\bpax|jax|xla|levanter|alpa\b|t5x|pathways|easylm|gspmd|axlearn|tensorflow|mesh-?tf", "maxtext"),
    (r"hugging ?face|accelerate|\bhf (trainer|peft)|" + FINE_TUNERS, "fsdp"),
    (r"megatron", "megatron-lm"),
)
"""First match of the framework's words (lower case) names the stack; ``megatron-lm`` is then dated."""

FIRST, LAST = 2020, 2022
"""Releases of Megatron-LM that are distinguished by their year; on V100 a run without a date is of the first."""

CORE_SINCE = 2023
"""Year from whose middle on Megatron-LM is built on Megatron-Core, whatever attention it runs."""
BEFORE_MIDDLE = r"\b(jan|feb|mar|apr|may)[a-z]* 2023|2023-0[1-5]|\bv[1-3]\.\d"
"""Words on a framework of before that: its month or its release."""

BEFORE_ASYNC = r"deepspeedexamples|deepspeed 3d|largescale|v1\.1\.5"
"""Words on a framework of Megatron-DeepSpeed's code of 2020 and 2021, and a fork that stayed with it."""

REPLICATED = r"^(?!.*deepspeed).*(\bddp\b|data[- ]?parallel|\bpeft\b)"
"""Words on loops around Transformers' models that leave every device a whole one, where no ZeRO stage is said."""

LISTED = 2021
"""Last year whose releases of DeepSpeed gathered into lists of tensors; later ones gather into one [DeepSpeed]."""

FUSED_SINCE = 2023
"""Runs of before and without a word on their attention had none that is fused: FlashAttention is of May 2022."""

LONGEST = 4096
"""Keys that these releases' softmax takes at most; longer runs that say nothing have FlashAttention [FusedSoftmax]."""

BEFORE_CORE = ("v100", "t4", "a100", "a800", "p100", "titan-rtx", "rtx2080ti")
"""Machines that frameworks ran on before attention was fused, and Megatron-LM before it was built on Megatron-Core."""


def stack_of(row: Row) -> str:
    """The name of the stack that a run's words on its framework stand for: its own, as the catalogue spells it."""
    framework = str(row["stack"].get("framework") or "")
    words = framework.lower()
    if framework in stack_names():
        return framework
    if accelerator_name(row).startswith(COMPILED):
        return kin(row)
    name = next((stack_name for pattern, stack_name in STACKS if re.search(pattern, words)), None) or kin(row)
    if name == "vocabulary-parallel" and row["stack"].get("attention") is None:
        name = "zero-bubble"  # the fork's first form, of 2023, before fused attention
    if name == "deepspeed" and re.search(REPLICATED, words) and not row["strategy"].get("zero_stage"):
        name = "fsdp"  # PyTorch's data parallelism, which no stage of DeepSpeed's stands for
    if name == "deepspeed" and year(row) <= LISTED:
        return f"deepspeed-{LISTED}"
    if name == "megatron-deepspeed" and (year(row) <= LISTED or re.search(BEFORE_ASYNC, words)):
        return f"megatron-deepspeed-{LISTED}"
    return _dated(row) if name == "megatron-lm" else name


def as_catalogued(row: Row) -> Row:
    """The run, of the catalogue's date where nothing dates it and it calls the stack that stands for it by its name.

    Its stack is then what ``plan predict`` prices under that name, but for what the run says itself.
    Words that stand for a stack and say no date are of any time, and taken for older.
    """
    if month(row) or container(row):
        return row
    own = stack_of(row) == str(row["stack"].get("framework")).lower()
    return {**row, "date": CURRENT} if own else row


def kin(row: Row) -> str:
    """What a framework of no known name is priced like.

    Compiled machines are programmed through XLA. Who splits layers over tensor or pipeline ranks descends from
    Megatron-LM, or does as it does; everything else is plain PyTorch.
    """
    plan = row["strategy"]
    if accelerator_name(row).startswith(COMPILED):
        return "maxtext"
    if int(plan.get("tp") or 1) * int(plan.get("pp") or 1) > 1:
        return "megatron-lm"
    return "generic"


def _dated(row: Row) -> str:
    """Megatron-LM of the run's time, built on Megatron-Core where attention or the machine says so."""
    said, newer = row["stack"].get("attention"), newer_machine(row)
    framework = str(row["stack"].get("framework")).lower()
    named = "megatron" in framework
    if named and (dated(row) or 0) >= CORE_SINCE and not re.search(BEFORE_MIDDLE, framework):
        return "megatron-core"
    if said is None:
        newer |= int((row.get("model") or {}).get("seq_length") or 0) > LONGEST
    if said is None and not named:
        newer |= source_year(row) >= FUSED_SINCE
    if said is not False and (said is not None or newer):
        return "megatron-core"
    return f"megatron-lm-{year(row)}"


def newer_machine(row: Row) -> bool:
    """Whether the machine is of after fused attention, as every framework's release for it then is."""
    return not accelerator_name(row).startswith(BEFORE_CORE)


def year(row: Row) -> int:
    """The release of Megatron-LM, and of what is dated like it, by framework, source and accelerator: 2020 to 2022."""
    oldest = row["cluster"]["accelerator"].startswith("v100")
    return min(max(source_year(row, FIRST if oldest else LAST), FIRST), LAST)


def source_year(row: Row, otherwise: int = FUSED_SINCE) -> int:
    """The year of a run: its framework's, its measurement's, or the latest that its source names, if any does."""
    return dated(row) or max(years(str(row.get("source"))), default=otherwise)
