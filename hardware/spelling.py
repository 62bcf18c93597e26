"""Names of machines as people, drivers and published runs write them.

Case and separators say nothing, nor do the words of vendors and families: "NVIDIA GeForce RTX 4090" is ``rtx4090``. A
size of memory is compared with the entry's, wherever it stands: "H20-96GB" is ``h20``, "H20-141GB" is nothing that the
catalogue holds. What fits several entries fits none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

FILLERS: Final = re.compile(
    r"nvidia|amd|intel|google|huawei|habana|aws|amazon|baidu|geforce|tesla|quadro|instinct|radeon"
    r"|accelerator|[ghnt]pus?|chips?|cards?|oam|hbm3e?|\d{2,4}w|grace|hopper|superchip|data|center|datacenter|generation|edition|r|tm"
)
"""Words that tell no entry of the catalogue from another: vendors, families, and what is written with their names, as
the kind of a board or of its memory and the power that it is allowed."""
_SIZE: Final = re.compile(r"(?<![a-z0-9.])(\d+)[ _-]?gi?b(?![a-z0-9])")
_WORD: Final = re.compile(r"[a-z0-9]+")


class NameParts(NamedTuple):
    """What is left of a name."""

    stem: str
    """Its words without separators; empty where nothing is left, or where two sizes are said."""
    size: int | None
    """GB of memory that it says, or GiB, which few tell apart."""


def bare_name(name: str) -> str:
    """The words of a name that say more than a size of memory, in lower case and joined by hyphens."""
    return "-".join(word for word in _WORD.findall(_SIZE.sub(" ", name.lower())) if not FILLERS.fullmatch(word))


def parse_name(name: str) -> NameParts:
    """A name taken apart."""
    sizes = _SIZE.findall(name.lower())
    return NameParts("" if len(sizes) > 1 else bare_name(name).replace("-", ""), int(sizes[0]) if sizes else None)


def entry_meant(said: str, known: Mapping[str, str], memory: Callable[[str], int | None]) -> str | None:
    """The entry that a name means.

    Args:
        said: the name.
        known: every name and short name to its entry.
        memory: GiB of an entry; None where it has none of its own.

    Returns:
        the entry, or None if there is none or more than one. Who says no memory means the name without it, or the only
        entry that is called so with any.
    """
    stem, size = parse_name(said)
    kin = [(parse_name(name).size, entry) for name, entry in known.items() if stem and parse_name(name).stem == stem]
    if size is None:
        found = {entry for own, entry in kin if own is None} or {entry for _, entry in kin}
    else:
        found = {entry for own, entry in kin if size in (own, memory(entry))}
    return found.pop() if len(found) == 1 else None
