"""Software stacks: which switches, supported strategies and costs a training framework brings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from costmodels.stack.costs import (
    AllocatorCosts,
    Calibrated,
    ExchangeCosts,
    ExpertCosts,
    GradientCosts,
    HostCosts,
    KernelCosts,
    LogitCosts,
    OffloadCosts,
    Overlap,
    PipelineCosts,
    RecomputeCosts,
    ShardingCosts,
    StateCosts,
)
from costmodels.stack.fields import Count
from costmodels.stack.releases import Release, before_releases, chosen
from costmodels.stack.renamed import check_renamed
from costmodels.stack.supports import Supports
from costmodels.stack.switches import Switches
from hardware.errors import UnknownName
from hardware.files import Document, as_path, built, load
from hardware.kernels import Label, Record

_HOME = Path(__file__).parent / "stacks"


class FormatChanges(Record):
    """What a framework does otherwise in one 16-bit format; None: as ever. Fields are called as in ``Stack``."""

    gradient_bytes: Count | None = None
    reduce_bytes: Count | None = None
    accumulate_traffic: Count | None = None
    micro_batch_gradient_bytes: Count | None = None
    expert_efficiency: float | None = Field(None, gt=0)

    def paths(self) -> dict[str, Any]:
        """The fields that differ, by their paths in a stack."""
        said = self.model_dump(exclude_none=True)
        return {f"{'calibrated' if name == 'expert_efficiency' else 'gradients'}.{name}": said[name] for name in said}


class Stack(Record):
    """A training framework at a point in time: what users set, what strategies it offers, what each part costs."""

    name: Label
    title: Label
    source: str
    release: Label = ""
    """The release or month that it is of; none: today's."""
    own_model: bool = False
    """Programs bring their own model: what its code keeps for the backward pass beyond the usual is not known."""
    switches: Switches = Switches()
    """What users set."""
    supports: Supports = Supports()
    """What strategies it offers."""
    kernels: KernelCosts = KernelCosts()
    """Kernels of a layer."""
    host: HostCosts = HostCosts()
    """Launches and other time of the host."""
    experts: ExpertCosts = ExpertCosts()
    """Load and traffic of experts."""
    overlap: Overlap = Overlap()
    """What of each communication stays exposed."""
    exchange: ExchangeCosts = ExchangeCosts()
    """What tensor and context ranks exchange."""
    sharding: ShardingCosts = ShardingCosts()
    """How parameters and gradients travel between data ranks."""
    gradients: GradientCosts = GradientCosts()
    """Formats of gradients and what is held with them."""
    pipeline: PipelineCosts = PipelineCosts()
    """What stages send and wait for."""
    recompute: RecomputeCosts = RecomputeCosts()
    """What recomputation repeats."""
    logits: LogitCosts = LogitCosts()
    """What a loss of stored logits holds and moves."""
    states: StateCosts = StateCosts()
    """Bytes of weights and optimizer states."""
    offload: OffloadCosts = OffloadCosts()
    """What moving states to the host costs."""
    allocator: AllocatorCosts = AllocatorCosts()
    """Memory that an allocator takes, and what lies outside it."""
    calibrated: Calibrated = Calibrated()
    """Constants fitted to measured runs."""
    bf16: FormatChanges | None = None
    """What is different in bf16; None: nothing."""
    fp16: FormatChanges | None = None
    """What is different in fp16, in which gradients can be added up as they are; None: nothing."""

    @model_validator(mode="before")
    @classmethod
    def _as_named_now(cls, given: object) -> object:
        """Fields by the names that they had before they were grouped are refused with those that they have."""
        if isinstance(given, Mapping):
            check_renamed(given, cls.model_fields, PATHS)
        return given

    @property
    def full_name(self) -> str:
        """Its name, with the release where it is not today's."""
        return f"{self.name}@{self.release}" if self.release else self.name

    def at(self, precision: str) -> Self:
        """The stack as it is where it trains in that precision."""
        other = {"bf16": self.bf16, "fp16": self.fp16}.get(precision)
        return self if other is None else self.changed(other.paths())

    def value(self, path: str) -> Any:
        """The field at a path such as "overlap.pp"."""
        group, _, field = path.rpartition(".")
        return getattr(getattr(self, group) if group else self, field)

    def changed(self, fields: Mapping[str, Any]) -> Self:
        """The stack with other values, by paths such as "overlap.pp"; they are taken as they are.

        Raises:
            KeyError: a path that leads nowhere.
        """
        groups: dict[str, dict[str, Any]] = {}
        for path, value in fields.items():
            group, _, field = path.rpartition(".")
            if path not in PATHS and path not in type(self).model_fields:
                raise KeyError(path)
            groups.setdefault(group, {})[field] = value
        update = groups.pop("", {})
        update |= {name: getattr(self, name).model_copy(update=inner) for name, inner in groups.items()}
        return self.model_copy(update=update) if update else self


GROUPS: Mapping[str, type[Record]] = {
    name: type(info.default) for name, info in Stack.model_fields.items() if isinstance(info.default, Record)
}
"""The groups of fields of a stack, by name."""
PATHS: frozenset[str] = frozenset(f"{group}.{name}" for group in GROUPS for name in GROUPS[group].model_fields)
"""Paths of all fields in them."""


def stack(name: str) -> Stack:
    """A stack by catalogue name, or from a user's TOML or JSON file; ``NAME@RELEASE`` or ``NAME@2024-12`` of its time.

    Raises:
        UnknownName: no such stack or release, with the nearest names.
        BadFile: the file cannot be read, or a field is wrong.
    """
    if (path := as_path(name)) is not None:
        return _from_file(path)
    base, at, release = name.partition("@")
    return _at_release(_known(base), release) if at else _shipped(_known(name))


def _known(name: str) -> str:
    lowered = name.strip().lower()
    if lowered not in stack_names():
        raise UnknownName("stack", name, stack_names())
    return lowered


def releases(name: str) -> tuple[Release, ...]:
    """The releases of a stack of the catalogue, the oldest first."""
    return _catalogued(_known(name))[1]


def _shipped(name: str) -> Stack:
    return _after(name, len(_catalogued(name)[1]))


def _at_release(name: str, wanted: str) -> Stack:
    """A stack of the catalogue as it was at one of its releases, or in a month."""
    known = _catalogued(name)[1]
    count = chosen(name, wanted, known)
    current = known[max(count - 1, 0)] if known else None
    if current is not None and current.stack is not None:
        return _shipped(_known(current.stack))
    found = _after(name, count)
    return found if found == _shipped(name) else found.changed({"release": wanted.strip().lower()})


@cache
def _after(name: str, count: int) -> Stack:
    """A stack of the catalogue as it was after so many of its releases."""
    fields, known = _catalogued(name)
    return built(before_releases(fields, known[count:]), Stack.model_validate, _HOME / f"{name}.toml")


def _from_file(path: Path) -> Stack:
    return built(_read(path)[0], Stack.model_validate, path)


@cache
def _catalogued(name: str) -> tuple[Document, tuple[Release, ...]]:
    return _read(_HOME / f"{name}.toml")


class _Releases(Record):
    releases: tuple[Release, ...] = ()


def _read(path: Path) -> tuple[Document, tuple[Release, ...]]:
    """The fields of a stack's file, and its releases, the oldest first."""
    return load(path, _split, "stack")


def _split(document: Document) -> tuple[Document, tuple[Release, ...]]:
    fields = dict(document)
    found = _Releases(releases=fields.pop("releases", ()))
    return fields, tuple(sorted(found.releases, key=lambda one: one.since))


@cache
def stack_names() -> tuple[str, ...]:
    """Names of the shipped stacks."""
    return tuple(sorted(path.stem for path in _HOME.glob("*.toml")))
