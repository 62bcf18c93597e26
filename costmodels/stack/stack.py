"""Software stacks: which switches, supported strategies and costs a training framework brings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from costmodels.stack.fields import Count
from costmodels.stack.layer_costs import ExchangeCosts, ExpertCosts, HostCosts, KernelCosts, RecomputeCosts
from costmodels.stack.overlap import Overlap
from costmodels.stack.renamed import check_renamed
from costmodels.stack.step_costs import (
    AllocatorCosts,
    Calibrated,
    GradientCosts,
    LogitCosts,
    OffloadCosts,
    PipelineCosts,
    ShardingCosts,
    StateCosts,
)
from costmodels.stack.supports import Supports
from costmodels.stack.switches import Switches
from hardware.errors import BadFile, UnknownName, flatten
from hardware.files import part, read
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
    """Formats of gradients and what is held beside them."""
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
    """A stack by catalogue name, or from a user's TOML or JSON file.

    Raises:
        UnknownName: no such stack, with the nearest names.
        BadFile: the file cannot be read, or a field is wrong.
    """
    if name.endswith((".toml", ".json")) or "/" in name:
        return _from_file(Path(name))
    lowered = name.strip().lower()
    if lowered not in stack_names():
        raise UnknownName("stack", name, stack_names())
    return _shipped(lowered)


@cache
def _shipped(name: str) -> Stack:
    return _from_file(_HOME / f"{name}.toml")


def _from_file(path: Path) -> Stack:
    try:
        return Stack.model_validate(part(read(path), "stack", path))
    except ValidationError as error:
        raise BadFile(path, flatten(error)) from None


def stack_names() -> tuple[str, ...]:
    """Names of the shipped stacks."""
    return tuple(sorted(path.stem for path in _HOME.glob("*.toml")))
