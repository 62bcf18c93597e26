"""Which adapters a measured run trained, where it trained adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import Model
from costmodels.stack.adapters import ADAPTED, OF_ATTENTION, Adapted, Adapters
from costmodels.stack.stack import Stack
from run_words import heard as re
from run_words.machines import Unpriceable
from run_words.peft_words import flags_said, peft_changes
from run_words.stack_words import FINE_TUNERS

Row = Mapping[str, Any]

TASKS: Final = (
    (r"\bq?-?lora\b|\bpeft\b|\badapters?\b", "lora"),
    (r"sft|fine-?tun|instruct|post-?train", "sft"),
    (r"pre-?train|from scratch|^train(ing)?$", "pretrain"),
)
"""First match of a run's word on its task names one of the three; who trains adapters says so before all else."""

USUAL: Final = (
    (r"automodel", "8"),
    (r"nemo|bridge", "32:linear_qkv"),
    (r"torchtune|llama[- ]?factory", "8"),
    (r"lit-?gpt", "8:linear_qkv"),
)
"""What programs train by default: performance recipes of NeMo (``nemo/collections/llm/recipes``,
``performance_mode``) and of Megatron-Bridge (``perf_recipes``, ``peft.target_modules``), with their default rank; NeMo
AutoModel's, all products whose names end in ``proj``; those of torchtune's configurations, LLaMA-Factory's and LitGPT's
(queries and values alone) [torchtune] [LitGPT]."""
FROZEN_IN_16: Final = rf"automodel|torchtune|lit-?gpt|{FINE_TUNERS}"
"""Programs that load frozen weights in 16 bits, whatever they do with weights that train."""
OTHERS: Final = "16"
RANK: Final = (
    r"\blora\b[^;.]{0,40}?(?<!\bon )(?<!\bof )(?<!\bglobal )(?<!\blocal )\b(?:rank|r)\b[ =:]*([1-9]\d*)"
    r"|\blora[_-](?:r|rank)\b[ =:]*(\d+)|\brank[ -]?(\d+) (?:lora|adapters)\b"
)
"""How notes say the rank of a run's adapters."""
TARGETS: Final = r"\b(lora[_-])?target([_ -]?modules?|[_-]linear|s)?\b"
BEGIN: Final = rf"\bq?-?lora|\badapters?\b|\bpeft\b|\brank\b|{TARGETS}"
"""Where a clause that says the rank, or that has modules for targets, begins to name them."""
MODULES: Final[tuple[tuple[str, tuple[Adapted, ...]], ...]] = (
    (r"\ball[ -]linear\b|\blora_target(_modules)?[ =:]+all\b|\blora_target_linear[ =:]+true\b", ADAPTED),
    (r"\ball( \w+)? (layers|modules|products|projections)\b", ADAPTED),
    (r"\battention( \w+)? (layers|modules|products|projections)\b", OF_ATTENTION),
    (r"\b(q|k|v|qkv)_proj\b|\bquery_key_value\b|\bc_attn\b|\blinear_qkv\b", ("linear_qkv",)),
    (r"\b(o|out|output)_proj\b|\bdense\b(?=,? dense_)|\blinear_proj\b", ("linear_proj",)),
    (r"\b(gate|up|gate_up)_proj\b|\bdense_h_to_4h\b|\blinear_fc1\b", ("linear_fc1",)),
    (r"\bdown_proj\b|\bdense_4h_to_h\b|\blinear_fc2\b", ("linear_fc2",)),
    (r"(?<!no )(?<!not the )(?<!without )(?<!frozen )\bmlps?\b", ("linear_fc1", "linear_fc2")),
)
"""Names of modules under which Transformers, torchtune and Megatron know what has adapters. Queries and values alone
stand for all that goes into attention, whose products share their input."""
QUANTISED: Final = (
    r"(?<!no )(?<!not )(?<!without )\b(q-?[ld]ora\b|nf4\b|(4[ -]?bit|int4) (\(\w+\) )?(base|frozen|weights))"
    r"|\bload[_ ]in[_ ]4[_ ]?bit\b(?!\W*(false|off|no\b|0\b))"
)
ALONE: Final = r"(^|[;,(] ?)(4[ -]?bit|int4)(?= ?($|[;,)]))"
"""Words for frozen weights of 4 bits."""
IN_4_BITS: Final = 0.516
"""Bytes per parameter in NF4 whose scales of 64 values are quantised too; other formats have 0.50 to 0.56
[Dettmers23]."""


def adapters_of(row: Row, model: Model, notes: list[str]) -> Adapters | None:
    """The run's adapters, None where all weights train.

    ``strategy.adapters`` of a row says them, in the words of ``Adapters.read``.

    Raises:
        Unpriceable: words that say none.
    """
    said, task = row["strategy"].get("adapters"), row.get("task")
    quantised = _quantised(row)
    task = "lora" if quantised else _task(task, notes)
    if said is None and task != "lora":
        return None
    named = _named(row) if said is None else None
    words = str(said) if said is not None else named or _usual(row)
    found = _read(words, model, notes if named else None)
    if quantised:
        notes.append("frozen weights of 4 bits take their memory; that products unpack them is not priced")
    if "/" not in words:
        found = found.model_copy(update=peft_changes(row, quantised=quantised))
    if said is None or found.kernels != "summed":
        notes.append(f"adapters {found}" + (UNSAID if said is named is None else ", by the run's words"))
    return found


UNSAID: Final = ": the run trains some and does not say which"


def _named(row: Row) -> str | None:
    """Rank and modules out of the run's notes and flags, in the words of ``Adapters.read``; None where no rank is."""
    stack = row["stack"]
    said = (
        f"{row.get('notes')}; {row['strategy'].get('precision_note')}; {stack.get('notes')}; {flags_said(row)}".lower()
    )
    if (found := re.search(RANK, said)) is None:
        return None
    rank = next(group for group in found.groups() if group)
    clauses = [clause for clause in re.split(r";|\.\s", said) if re.search(f"{RANK}|{TARGETS}", clause)]
    on = " ".join(clause[match.start() :] for clause in clauses if (match := re.search(BEGIN, clause)))
    modules = {name for words, names in MODULES if re.search(words, on) for name in names}
    _, _, usual = _usual(row).partition(":")
    named = ",".join(name for name in ADAPTED if name in modules) or usual
    return f"{rank}:{named}" if named else rank


def _read(words: str, model: Model, notes: list[str] | None) -> Adapters:
    """The adapters that the words say; where notes are given, those that experts would have are left out of them."""
    try:
        found = Adapters.read(words, OF_ATTENTION) if model.moe else Adapters.read(words)
    except ValueError as error:
        raise Unpriceable(f"strategy.adapters: {error}") from None
    if model.moe and notes is not None:
        return _of_attention(found, notes)
    if model.moe and not set(found.modules) <= set(OF_ATTENTION):
        raise Unpriceable(f"strategy.adapters {found}: none are priced on experts, which {model.name} has")
    return found


def _of_attention(found: Adapters, notes: list[str]) -> Adapters:
    """The adapters of a mixture of experts, whose experts have none that are priced."""
    kept = tuple(name for name in found.modules if name in OF_ATTENTION) or OF_ATTENTION
    if kept != found.modules:
        notes.append("adapters on experts are left out of the price")
    return found.model_copy(update={"modules": kept})


PREQUANTISED: Final = (
    r"\b(base|frozen) (weights|model) (is |are )?pre-?quanti[sz]ed\b"
    r"|\bpre-?quanti[sz]ed (base|frozen) (weights|model)\b"
)
"""Words for frozen weights that are kept in the format of the products, and in no other."""
NVFP4_TWICE: Final = 2.0 * (0.5 + 1.0 / 16.0)
"""Bytes per parameter in NVFP4, with a scale of 8 bits to 16 values, in rows for the forward pass and turned for the
backward pass [TE]."""


def _task(said: Any, notes: list[str]) -> str | None:
    """The task under one of our names; None where none is said, or nothing is known of the word."""
    if said is None:
        return None
    spaced = str(said).lower().replace("_", "-")
    found = next((task for words, task in TASKS if re.search(words, spaced)), None)
    if found is None:
        notes.append(f"task {said!r:.40} is none of pretrain, sft, lora; training of all weights assumed")
    return found


def frozen_changes(row: Row, chosen: Stack) -> dict[str, Any]:
    """Fields of the stack where weights are frozen: nothing keeps a master copy of what never changes."""
    words = str(row["stack"].get("framework")).lower()
    narrow = _quantised(row) or re.search(FROZEN_IN_16, words)
    packed = {"frozen_bytes": IN_4_BITS} if _quantised(row) else _prequantised(row)
    return packed | ({"weight_bytes": 2} if narrow and chosen.states.weight_bytes > 2 else {})


def _prequantised(row: Row) -> dict[str, float]:
    """Bytes of frozen weights that are only there in the 4 bits that products take."""
    plan = row["strategy"]
    said = f"{plan.get('precision_note')} {row['stack'].get('notes')}".lower()
    only = plan.get("precision") == "nvfp4" and re.search(PREQUANTISED, said)
    return {"frozen_bytes": NVFP4_TWICE} if only else {}


def _quantised(row: Row) -> bool:
    """Whether the words of a run say that its frozen weights are of 4 bits."""
    note, stack = str(row["strategy"].get("precision_note")).lower(), row["stack"]
    task = str(row.get("task")).lower()
    words = f"{task} {note} {stack.get('framework')} {stack.get('notes')}".lower()
    words += f" {row.get('notes')}; {flags_said(row)}".lower() if "lora" in task else ""
    alone = "lora" in task and any(re.search(ALONE, str(said).lower()) for said in (note, stack.get("notes")))
    return bool(alone) or re.search(QUANTISED, words) is not None


def _usual(row: Row) -> str:
    program = str(row["stack"].get("framework")).lower()
    return next((words for pattern, words in USUAL if re.search(pattern, program)), OTHERS)
