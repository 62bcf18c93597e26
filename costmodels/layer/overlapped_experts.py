"""What stays exposed of the experts' traffic of a layer that runs beside another micro-batch's, part by part.

Megatron-Core runs the forward pass of one micro-batch beside the backward pass of another, layer by layer, on one
stream that computes and one that communicates (``model_chunk_schedule_plan.py``): what comes before dispatch
(attention, norms, router) beside the other's combine, experts backward beside dispatch, experts forward beside the
other's dispatch, and attention backward beside combine. Each stream waits for the other's part before the next.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.forward_backward import Passes
from costmodels.stack.stack import Stack
from costmodels.strategy import Floats


def is_overlapped(stack: Stack) -> bool:
    """Whether forward and backward passes of neighbouring micro-batches run beside each other [MegatronMoE26]."""
    return 0.0 < stack.overlap.ep < 1.0 and not stack.overlap.paired_passes


def exposed_seconds(traffic: Passes, *, layer: Passes, experts: Passes, stack: Stack) -> tuple[Passes, Passes]:
    """Seconds of dispatch and combine that lengthen a layer with a partner; and those of computation that hide them.

    Each of the four exchanges outlasts the part that it runs beside, or takes ``overlap.ep`` of the units from it for
    as long as both run. The sum over both passes is what counts; each pass is given its own exchanges' part. What hides
    them is given by the pass that computes: the other one's exchanges run beside it.

    Args:
        traffic: dispatch and combine, halves of each pass.
        layer: everything else of the layer, the experts included, that hides no traffic of its own.
        experts: what lies between dispatch and combine.
        stack: its ``overlap.ep`` is the share of the units that dispatch and combine take.
    """
    around = Passes(layer.forward - experts.forward, layer.backward - experts.backward)
    ahead = _behind(traffic.backward, around.forward, experts.forward)
    after = _behind(traffic.forward, around.backward, experts.backward)
    freed = 1.0 - stack.overlap.ep
    return Passes(traffic.forward - freed * after, traffic.backward - freed * ahead), Passes(ahead, after)


def _behind(traffic: Floats, around: Floats, experts: Floats) -> Floats:
    """Seconds for which the two exchanges of one pass run beside the parts of the other."""
    return np.minimum(traffic / 2.0, around) + np.minimum(traffic / 2.0, experts)
