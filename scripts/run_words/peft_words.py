"""With which kernels a measured run ran its adapters: PEFT's are an operation each, others fuse them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re
from run_words.dated import month
from run_words.saving import NARROW
from run_words.stack_words import FINE_TUNERS

Row = Mapping[str, Any]

OF_PEFT: Final = rf"hugging ?face|\bhf (trainer|peft)|{FINE_TUNERS}"
"""Programs whose adapters are PEFT's."""
FUSED: Final = r"unsloth|habana|\bhpus?\b|\bxla\b|neuron|megatron"
"""Programs that have adapters as one function of their own, or a compiler that always runs."""
COMPILED: Final = (
    r"(?<!no )(?<!not )(?<!without )(?<!torch[._ ])\b(torch[._ ])?compiled?\b"
    r"(?![ (]*(=|:|is)? ?(false|off|no\b|disabled))|\bunsloth\b"
)
"""Words, in notes too, for what joins such operations."""
UPCAST_SINCE: Final = "2024-08"
"""Adapters on weights of 16 bits are of 32 from PEFT 0.12 of 24 July 2024 on (commit ae1ae20b7) [PEFT]."""
_OF_THE_MODEL: Final = "".join(
    rf"(?<!{name}[ _-])" for name in ("attention", "attn", "hidden", "resid", "embd", "model")
)
ALL_KEPT: Final = (
    rf"{_OF_THE_MODEL}dropout[\"']?[ =:]*(0(\.0*)?(?![.\d])|none\b|off\b)|\b(no|without) (lora )?dropout\b"
)
WIDE: Final = r"\b(fp32|float32) (frozen |base )?(weights|parameters)\b|\bdtype[ =:]*(torch\.)?float32\b"
"""Words for a base model in 32 bits, whose adapters always were."""


def peft_changes(row: Row, *, quantised: bool) -> dict[str, Any]:
    """Fields of the adapters of a run whose program has them of PEFT; none of others."""
    stack = row["stack"]
    program = f"{stack.get('framework')} {stack.get('overlap')}".lower()
    said = f"{row['strategy'].get('precision_note')} {stack.get('notes')} {row.get('notes')}; {flags_said(row)}".lower()
    peft = re.search(OF_PEFT, program) or re.search(r"(?<!no )\bpeft\b", said)
    if not peft or re.search(FUSED, program) or re.search(COMPILED, f"{program} {said}"):
        return {}
    return {"kernels": _kernels(row, said, quantised=quantised), "dropout": re.search(ALL_KEPT, said) is None}


def _kernels(row: Row, said: str, *, quantised: bool) -> str:
    """Which kernels they are; products of adapters on 4 bits take what autocast gives them as it is."""
    uncast = re.search(NARROW, said) is not None
    if quantised:
        return "32-bit" if uncast else "16-bit"
    when = month(row)
    if when is not None and when < UPCAST_SINCE and not re.search(WIDE, said):
        return "16-bit"
    return "32-bit" if uncast else "autocast"


def flags_said(row: Row) -> str:
    """The run's flags as words."""
    flags = row["stack"].get("flags")
    if isinstance(flags, Mapping):
        return "; ".join(f"{name} {value}" for name, value in flags.items())
    return "; ".join(map(str, flags)) if isinstance(flags, list | tuple) else str(flags or "")
