"""How what a measured run is priced on differs from the catalogue's entry that stands for it, as notes.

The stack's are written as ``plan predict --set`` takes them, so that it prices the run alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from costmodels.scenario import Scenario
from costmodels.stack.stack import GROUPS, Stack
from hardware.records import Accelerator, NodeGroup, UnsupportedDtype
from planner.request.overrides import written

KERNEL: Final = frozenset({"switches.attention_backend", "kernels.blackwell_attention", "kernels.recent_cudnn"})
"""Fields that choose the kernel of attention, and do nothing else; on many machines several values choose one."""
UNSET: Final = frozenset({"calibrated.basis", "calibrated.own_runs", "switches.adapters"})
"""Fields that ``--set`` does not take."""
ORDER: Final = tuple(f"{group}.{name}" for group in GROUPS for name in GROUPS[group].model_fields)


def of_the_stack(scenario: Scenario, usual: Stack) -> list[str]:
    """A note with the fields of the stack that the run's words or its date change; none where nothing is changed.

    Args:
        scenario: what is priced.
        usual: the stack that the run names, or the one given.
    """
    stack, base = scenario.stack, usual.at(scenario.precision)
    fields = [path for path in ORDER if path not in UNSET and stack.value(path) != base.value(path)]
    if KERNEL & set(fields) and _same_kernel(scenario, base):
        fields = [name for name in fields if name not in KERNEL]
    said = [f"stack.{path.removeprefix('switches.')}={written(stack.value(path))}" for path in fields]
    return [f"by the run's words or its date {', '.join(said)}"] if said else []


def _same_kernel(scenario: Scenario, base: Stack) -> bool:
    """Whether the machines have but one kernel for what the two stacks say of attention."""
    plain = scenario.stack.changed({path: base.value(path) for path in KERNEL})
    try:
        return replace(scenario, stack=plain).rates == scenario.rates
    except UnsupportedDtype:  # which is said where the run is priced
        return False


def of_the_network(group: NodeGroup, usual: NodeGroup, cluster: str, link: str | None) -> str:
    """The cluster whose network stands for the run's, and what the run's words say that differs from it.

    Args:
        group: what is priced.
        usual: the nodes of that cluster in the catalogue.
        cluster: its name.
        link: the link of the catalogue that the run's words on its network name.
    """
    carried, known = (nodes.tiers[-1].link.bandwidth / 1e9 if nodes.tiers else 0.0 for nodes in (group, usual))
    differs = [f"{carried:.3g} GB/s a device in place of {known:.3g}"] if carried != known else []
    differs += [link] if link else []
    return f"network of {cluster}{' with ' if differs else ''}{', '.join(differs)}, by the run's words"


def of_the_device(device: Accelerator, usual: Accelerator) -> Iterator[str]:
    """A note each where the run holds its devices to less power, or has other rates than they have elsewhere."""
    if device.name != usual.name:
        return
    if device.power_limit not in (None, usual.power_limit):
        yield f"{device.name} held to {device.power_limit:g} W, by the run's words"
    for name, peak in usual.peak.items():
        if name in device.peak and device.peak[name] != peak:
            yield f"{device.name} with {device.peak[name] / peak:.3g} of its peak in {name}, by the run's words"
