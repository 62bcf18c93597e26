"""Makers of accelerators, and which stacks make programs for TPUs: only those on XLA do."""

from __future__ import annotations

from typing import Final

from costmodels.stack.stack import stack_names
from hardware.records import Cluster

NO_GPUS: Final = ("Google", "AWS", "Huawei", "Intel", "Baidu", "Moore Threads")
"""Makers of accelerators that neither CUDA nor ROCm programs."""
TPU: Final = "Google"
"""Who makes TPUs."""
XLA: Final = "maxtext"
"""The stack, and the framework, that makes programs for TPUs."""
NO_DEVICE: Final = "no {accelerator}, on which it does not run; maxtext runs on TPUs"
NO_CUDA: Final = "no {accelerator}, which has no CUDA; maxtext runs on TPUs"
NO_TORCH: Final = "no {accelerator}: PyTorch reaches TPUs through XLA alone; maxtext runs on them"
"""Why a framework does not run on the devices of other makers."""
BY_XLA: Final = frozenset({TPU, "AWS"})
"""Makers of devices that XLA alone makes programs for."""
_MEASURED: Final = {"Huawei": "mindformers"}
"""The stack of which runs on a maker's devices are known, where the usual one is made for GPUs."""
_ANYWHERE: Final = frozenset({XLA, "generic"})
"""Stacks that may be planned for on a TPU; generic is no framework in particular."""


def tpu_of(cluster: Cluster) -> str | None:
    """The name of a cluster's TPUs, None where it has none."""
    devices = (group.accelerator for group in cluster.groups)
    return next((device.name for device in devices if device.vendor == TPU), None)


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
