"""Which stacks there are for TPUs: programs for them come from XLA, which all but one of the stacks do without."""

from __future__ import annotations

from typing import Final

from costmodels.stack.stack import stack_names
from hardware.records import Cluster
from planner.errors import BadRequest
from planner.frameworks.records import NO_GPUS

TPU: Final = "Google"
"""Who makes them."""
XLA: Final = "maxtext"
"""The stack, and the framework, that makes programs for TPUs."""
COMPILED: Final = ("tpu", "trainium")
"""How devices are called that XLA alone, or a compiler behind its interface, makes programs for."""
_MEASURED: Final = {"Huawei": "mindformers"}
"""The stack of which runs on a maker's devices are known, where the usual one is made for GPUs."""
_ANYWHERE: Final = frozenset({XLA, "generic"})
"""Stacks that may be planned for on a TPU; generic is no framework in particular."""


def tpu_of(cluster: Cluster) -> str | None:
    """The name of a cluster's TPUs, None where it has none."""
    devices = (group.accelerator for group in cluster.groups)
    return next((device.name for device in devices if device.vendor == TPU), None)


def usual_stack(framework: str | None, cluster: Cluster) -> str | None:
    """The stack that a framework or a cluster is planned with where none is asked for; None where any would do."""
    from planner.frameworks.registry import FRAMEWORKS

    if framework is not None:
        return FRAMEWORKS[framework].stack
    return XLA if tpu_of(cluster) else None


def needs_cuda(stack: str) -> bool:
    """Whether a stack of the catalogue makes no programs through XLA."""
    return stack in stack_names() and stack not in _ANYWHERE


def taken_for(framework: str | None, cluster: Cluster) -> str:
    """Words behind such a stack: for what it was taken, or that it is priced as on the devices that it is made for."""
    if what := framework or tpu_of(cluster):
        return f" (for {what})"
    makers = {group.accelerator.vendor for group in cluster.groups} & set(NO_GPUS)
    own = next((f"; --stack {_MEASURED[maker]} was measured on {maker}'s" for maker in makers & set(_MEASURED)), "")
    return f" (as it runs on GPUs{own})" if makers else ""


def check_programs(stack: str, framework: str | None, cluster: Cluster) -> None:
    """Refuse a stack of the catalogue, or a framework, on TPUs that it makes no programs for.

    Raises:
        BadRequest: it makes none, with the one that does.
    """
    device = tpu_of(cluster)
    if device is None:
        return
    if framework not in {None, XLA}:
        raise BadRequest(f"framework {framework} makes no programs for {device}; {XLA} does")
    if needs_cuda(stack):
        raise BadRequest(f"stack {stack} makes no programs for {device}; {XLA} does")
