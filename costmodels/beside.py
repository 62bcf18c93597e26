"""What stays exposed of the experts' traffic of a layer that runs beside another micro-batch's, part by part.

Megatron-Core runs the forward pass of one micro-batch beside the backward pass of another, layer by layer, on one
stream that computes and one that communicates (``model_chunk_schedule_plan.py``): what comes before dispatch
(attention, norms, router) beside the other's combine, experts backward beside dispatch, experts forward beside the
other's dispatch, and attention backward beside combine. Each stream waits for the other's part before the next.
"""

from __future__ import annotations

import numpy as np

from costmodels.passes import Passes
from costmodels.stack import Stack
from costmodels.strategy import Floats


def overlaps(stack: Stack) -> bool:
    """Whether forward and backward passes of neighbouring micro-batches run beside each other [MegatronMoE26]."""
    return 0.0 < stack.overlap.ep < 1.0 and not stack.overlap.pairs


def exposed_beside(traffic: Passes, *, layer: Passes, experts: Passes, stack: Stack) -> Passes:
    """Seconds of dispatch and combine that lengthen a layer with a partner.

    Each of the four exchanges outlasts the part that it runs beside, or takes ``overlap.ep`` of the units from it for
    as long as both run. The sum over both passes is what counts; each pass is given its own exchanges' part.

    Args:
        traffic: dispatch and combine, halves of each pass.
        layer: everything else of the layer, the experts included.
        experts: what lies between dispatch and combine.
        stack: its ``overlap.ep`` is the share of the units that dispatch and combine take.
    """
    around = Passes(layer.forward - experts.forward, layer.backward - experts.backward)
    forward, backward = traffic.forward / 2.0, traffic.backward / 2.0

    def left(seconds: Floats, window: Floats) -> Floats:
        together = np.minimum(seconds, window)
        return seconds - together + stack.overlap.ep * together

    return Passes(
        left(forward, experts.backward) + left(forward, around.backward),
        left(backward, around.forward) + left(backward, experts.forward),
    )
