"""What a run's words on recomputation mean: none, all layers, or parts of them, and how far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

PLAIN: Final[tuple[tuple[str, str], ...]] = (
    (r"false|no|off|0|n/?a", "none"),
    (r"selective.*|core[ _-]?att(n|ention)|attention|sac|minimal|partial|op", "selective"),
    (r"true|yes|on|uniform|full.*|remat.*|block|ac|(gradient|activation)[ _-]checkpointing", "full"),
)
"""What programs call none of it, the cores of attention, and all layers."""
UNSAID: Final = r"\W*|unknown|default|auto|not (stated|said|given|known|reported)|unspecified|n/s"
"""Words that leave it open."""
SWITCHED: Final = r"(?P<name>.*?) ?[:=] ?(?P<value>true|yes|on|enabled?|1|false|no|off|disabled?|0|none|null)"
"""A setting by its name and value, as a configuration has it."""
ALL_OF_IT: Final = r"\b(nothing saveable|saves? nothing|all layers|every layer|whole layers?)\b"
PARTS: Final = (
    r"\b(select\w*|partial\w*|core att\w*|att(entio)?n only|op(erator)?s? level|sac|minimal|modules?|budget)\b"
    r"|\bdots\b.*\bsaveable\b|\bsave \w*dots?\b|\bevery (second|other|2nd) (layer|block)"
)
DENIED: Final = r"^(no|not|without|w/o)\b|\b(off(?! ?load)|disabled|unused|none|never)\b"
WHOLE: Final = r"checkpoint|recomput|\bremat|\b(full|uniform|block|unsloth|ac|enabled?)\b"
KINDS: Final = ((ALL_OF_IT, "full"), (PARTS, "selective"), (DENIED, "none"), (WHOLE, "full"))
"""First match of words that are no name of a program's, spaces for all that joins them."""


def as_recomputed(row: Row) -> Row:
    """The run with its kind of recomputation under our name, and what else is said of it among the details."""
    plan = row["strategy"]
    if policy := re.search(r"policy (save_dot_\w+)", f"{row.get('filled')} {row.get('notes')}"):
        plan = {**plan, "recompute_detail": policy[1]}  # which keeps what its name says, not Megatron's modules
        row = {**row, "strategy": plan}
    said = plan.get("recompute")
    if said is None or said == "":
        return row
    words = str(said).lower().strip().removeprefix("--")
    changed = {**plan, "recompute": kind(words)}
    plain = any(re.fullmatch(theirs, words) for theirs, _ in PLAIN) and re.fullmatch(r"\w+", words)
    if not plain and not plan.get("recompute_detail"):
        changed["recompute_detail"] = words
    return {**row, "strategy": changed}


def kind(words: str) -> str | None:
    """The kind that some words mean, None where they leave it open; as they are where nothing is known of them."""
    words = words.lower()
    if known := next((ours for theirs, ours in PLAIN if re.fullmatch(theirs, words)), None):
        return known
    spaced = re.sub(r"[\s_-]+", " ", words)
    if re.fullmatch(UNSAID, spaced):
        return None
    if switch := re.fullmatch(SWITCHED, spaced):
        on = re.match(r"true|yes|on|enable|1", switch["value"])
        return kind(f"{switch['name']} enabled") if on else "none"
    return next((ours for theirs, ours in KINDS if re.search(theirs, spaced)), words)


MODULE_WORDS: Final = (
    (r"(rms|layer)[ _-]?norms?|norms?", "layernorm"),
    (r"mla[ _-]up[ _-]?proj\w*|up[ _-]?proj\w*s? of mla", "mla_up_proj"),
    (r"(swi|ge)glu|(moe[ _-])?act(ivation)?[ _-]?(function)?s?", "moe_act"),
    (r"core[ _-]attention|attention[ _-]cores?", "core_attn"),
    (r"feed[ _-]?forward( network)?s?|ffns?|mlps?", "mlp"),
)
"""Modules in the words of papers."""
BEFORE_A_LIST: Final = r"^(only |recompute[sd]?:? |(selective|modules|operators|ops)( \w+)?[:;,] ?|selective \()+"


def modules_named(said: str) -> set[str]:
    """The modules that a list of words names; empty where one of them is none."""
    listed = re.sub(BEFORE_A_LIST, "", said)
    parts = [part for part in re.split(r"\s*(?:[,;+&/]|\band\b)\s*", listed.strip(" ).")) if part]
    found = [next((ours for theirs, ours in MODULE_WORDS if re.fullmatch(theirs, part)), None) for part in parts]
    return {name for name in found if name} if all(found) else set()
