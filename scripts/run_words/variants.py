"""Which variant of an accelerator a measured run means, and how much power it was allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from hardware.catalogue import names
from hardware.errors import UnknownName
from hardware.files import canonical
from hardware.records import Accelerator, NodeGroup
from hardware.spelling import bare_name, parse_name
from run_words import heard as re

Row = Mapping[str, Any]

VARIANTS: tuple[tuple[str, str, str], ...] = (("ascend-910b", r"900 a2 podc?\b", "ascend-910b1"),)
"""Accelerator, words on it, and the entry of the catalogue that they mean."""

DIES: dict[str, tuple[int, float, str]] = {
    "mi250x": (8, 64.0, "mi250x-gcd"),
    "trainium1": (32, 16.0, "trainium1-core"),
    "mi250": (8, 64.0, "mi250-gcd"),
    "max-1550": (12, 64.0, "max-1550-stack"),
    "ascend-910c": (16, 64.0, "ascend-910c-die"),
}
"""Packages whose parts drivers show as devices: how many such devices a node has, their memory in GB, and the entry of
one of them. Runs on MI250X mostly count dies, and AWS's own figures count NeuronCores, two to a chip."""
CORES: Final[dict[str, tuple[int, float]]] = {"tpu-v2": (8, 8.0), "tpu-v3": (8, 16.0), "tpu-v4": (8, 16.0)}
"""Chips of two cores that programs may show as devices: how many such devices a host of four chips has, and the memory
of one in GB; each has half of what its chip has [Austin25]. Who says no memory means cores by their number."""
NEAR: Final[dict[str, tuple[str, str, float]]] = {
    "ascend-910": ("ascend-910a", "the first of its name", 32.0),
    "ascend-910-64gb": ("ascend-910b", "which has as much memory", 64.0),
    "ascend-910b2": ("ascend-910b1", "which has as many cores", 64.0),
    "ascend-910b4": ("ascend-910b", "which has as many cores", 32.0),
    "a800-pcie": ("a100-pcie-80gb", "which trains alike but for NVLink bridges", 80.0),
    "h800-pcie": ("h100-pcie", "which trains alike but for NVLink bridges", 80.0),
    "gh200-nvl2": ("gh200", "of which it joins two", 144.0),
    "trn2-ultra": ("trainium2", "of which it joins 64, in place of the 16 of a node", 96.0),
    "rtx-4090d": ("rtx4090", "which has 128 multiprocessors to its 114", 24.0),
}
"""Accelerators that the catalogue holds under the name of their nearest kin, why, and their own memory in GB
(recalled)."""
OTHER_DEVICE: Final = (
    r"\b(laptop|mobile|max-?q|super|ti|ada|ampere|blackwell|mig|vgpu|slice|emulat\w*|simulat\w*|vs|or|and)\b"
)
"""Words that make another device of what is named before them, or name several."""
MACHINE: Final = r"(?i)^(nvidia )?[dh]gx[ _-]+(?=[a-z])|^\d+ ?[x\u00d7*] ?(?=[a-z])"
"""What an accelerator is called by the machine that it is in, as in DGX H100 and 8x A100."""
LIMITED = 0.75
"""Share of the full power of a device that is called power limited: 750 of B200's 1000 W (GitHub pytorch/ao, pull
request 3566; pytorch/helion, 347)."""

OF_THE_HOST = 2.5
"""A size in a name that is so many times the device's memory is its host's, as of GH200 with 480 GB."""
RESIZED = 1.12
"""Sizes of memory that are further apart are not one size in GB and in GiB, or with and without what is reserved."""


def accelerator_name(row: Row) -> str:
    """The catalogue's name of the accelerator, by what the source says of it and of itself; as said if it has none."""
    said, words = row["cluster"], _words(row)
    name = _of_size(catalogued(called(row), memory_said(row)), memory_said(row))
    devices, memory, die = DIES.get(name, (0, 0.0, ""))
    if die and (said.get("gpus_per_node") == devices or (memory_said(row) or 2.0 * memory) <= memory):
        return die
    return next((variant for one, found, variant in VARIANTS if one == name and re.search(found, words)), name)


def called(row: Row) -> str:
    """What a run calls its accelerator, with "80G" as the 80 GB that it is."""
    return re.sub(r"(?<![\w.])(\d{2,3}) ?G(?![\w.])", r"\1GB", str(row["cluster"]["accelerator"]), flags=re.IGNORECASE)


def catalogued(said: str, memory: float = 0.0) -> str:
    """The catalogue's name of an accelerator by what it is called, also with a size of memory that no entry has.

    Words behind a name, as of its machine or its place, are left out where the whole is none: "A100-SXM4-40GB p4d".
    """
    found = (_named(short, memory) for short in (said, *_shorter(said)))
    return next((name for name in found if name in names("accelerator")), said)


def _shorter(said: str) -> Iterator[str]:
    """What is left of a name without what is in brackets, without its last words, one by one, and what is in brackets.

    Nothing of a name that says another device by its last words.
    """
    if re.search(OTHER_DEVICE, said, re.IGNORECASE):
        return
    whole = re.sub(MACHINE, "", re.sub(r"\(.*?\)", " ", said).strip())
    yield whole
    yield from (whole[: end.start()] for end in reversed([*re.finditer(r"[\s_,/+]+|-(?=\d+$)", whole)]))
    yield from re.findall(r"\((.*?)\)", said)


def _named(said: str, memory: float) -> str:
    own = _catalogued(said)
    if own in names("accelerator"):
        return own
    near = _near(said, memory)
    name = near[0] if near else _catalogued(bare_name(said))
    return name if name in names("accelerator") else said


def naming(row: Row) -> list[str]:
    """What is assumed where the catalogue has the accelerator under the name of its kin."""
    said = called(row)
    if near := _near(said, memory_said(row)):
        return [f"{said} taken for {near[0]}, {near[1]}"]
    found = accelerator_name(row)
    return [f"{said} taken for {found}, by a part of its name"] if not _whole(said) and found != said else []


def _whole(said: str) -> bool:
    """Whether an entry of the catalogue, or its kin, is called so, word for word but for sizes of memory."""
    return _named(said, 0.0) in names("accelerator")


def memory_said(row: Row) -> float:
    """GB of memory that a run says, by the name of its accelerator where it says them nowhere else; 0 if nowhere."""
    said = called(row)
    if memory := row["cluster"].get("memory_gb"):
        return float(memory)
    near = _near(said)
    known = _catalogued(said) in names("accelerator")
    return 0.0 if known else float(_size(said) or (near[2] if near else 0.0))


def _near(said: str, memory: float = 0.0) -> tuple[str, str, float] | None:
    """The kin of an accelerator that the catalogue does not hold, why, and the memory of what is said."""
    if _catalogued(said) in names("accelerator"):
        return None
    bare = bare_name(said)
    return NEAR.get(f"{bare}-{_size(said) or round(memory)}gb") or NEAR.get(bare)


def _size(said: str) -> int:
    """GB of memory in a name; 0 where it has none."""
    return parse_name(said).size or 0


def of_cores(row: Row, accelerator: str) -> bool:
    """Whether the devices of a run are cores, two of which make a chip of the catalogue."""
    devices, memory = CORES.get(accelerator, (0, 0.0))
    said = memory_said(row)
    return 0.0 < said <= memory * RESIZED if said else row["cluster"].get("gpus_per_node") == devices > 0


def halved(group: NodeGroup) -> NodeGroup:
    """The nodes with the two cores of every chip as devices, which share its links as they share its memory."""
    chip = group.accelerator
    fields = ("memory", "usable_memory", "memory_bandwidth", "power", "price", "failure")
    half = {field: getattr(chip, field) / 2.0 for field in fields if getattr(chip, field) is not None}
    peaks = {dtype: peak / 2.0 for dtype, peak in chip.peak.items()}
    core = chip.model_copy(update={**half, "peak": peaks, "compute_units": max(1, chip.compute_units // 2)})
    tiers = [tier.model_copy(update={"domain": 2 * tier.domain, "link": tier.link.times(0.5)}) for tier in group.tiers]
    size = 2 * group.gpus_per_node
    return group.model_copy(update={"accelerator": core, "gpus_per_node": size, "tiers": tuple(tiers)})


@cache
def _catalogued(said: str) -> str:
    try:
        return canonical("accelerator", said)
    except UnknownName:
        return said


def _of_size(name: str, memory: Any) -> str:
    """The entry with as many GB as the run says, where the name leaves that open or stands for another size."""
    if not memory:
        return name
    sized = f"{round(float(memory))}gb"
    for other in (re.sub(r"\d+gb$", sized, name), f"{name}-{sized}"):
        if (found := _catalogued(other)) != other or found in names("accelerator"):
            return found
    return name


def _words(row: Row) -> str:
    return f"{row.get('source')} {row['cluster'].get('accelerator_note')}".lower()


def as_run(row: Row, accelerator: Accelerator) -> Accelerator:
    """The accelerator held to the power that its note allows it; products of fp32 go through TF32 where it says so."""
    said = row["cluster"]
    limit = allowed_power(f"{said.get('accelerator_note') or ''} {said.get('accelerator')}".lower(), accelerator)
    update = {"power_limit": limit or accelerator.power_limit, "peak": _with_tf32(row, accelerator.peak)}
    return accelerator.model_copy(update=update)


NO_TF32 = r"\b(no|without|disabled?|off)\W+(use of )?tf32\b|tf32\W*(use |is )?(not|off|disabled|unknown|false|no|0)\b"
"""Words against it, where a note on a run in fp32 speaks of TF32."""


def _with_tf32(row: Row, peaks: dict[str, float]) -> dict[str, float]:
    """The peaks, where products of a run in fp32 are said to go through TF32 at the rate of that."""
    said = str(row["strategy"].get("precision_note") or "").lower()
    through = row["strategy"].get("precision") == "fp32" and "tf32" in said and not re.search(NO_TF32, said)
    return peaks | {"fp32": peaks["tf32"]} if through and "tf32" in peaks else peaks


def with_memory(row: Row, device: Accelerator, notes: list[str]) -> Accelerator:
    """The device with as much memory as the run says, where the catalogue knows it with another size alone."""
    said, known = memory_said(row), device.memory / 2.0**30
    changed = device.name in {variant for _, _, variant in VARIANTS}
    hosts = said > OF_THE_HOST * known and not row["cluster"].get("memory_gb")
    if not said or changed or hosts or 1.0 / RESIZED <= said / known <= RESIZED:
        return device
    notes.append(f"{device.name} with {said:g} GB in place of {known:.0f}")
    sizes = ("memory", "usable_memory")
    return device.model_copy(update={field: said / known * getattr(device, field) for field in sizes})


def allowed_power(note: str, accelerator: Accelerator) -> float | None:
    """Power that the note allows, W; None where it says nothing, or nothing that would hold the device."""
    watts = re.search(r"(\d{2,4})\s*w\b", note)
    if watts is None and not re.search(r"power[ -]limited", note):
        return None
    limit = float(watts[1]) if watts else LIMITED * accelerator.power
    return None if limit == accelerator.power or accelerator.wrong_limit(limit) else limit
