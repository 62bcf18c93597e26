"""Number formats of the layers' matrix products, and what turning their inputs into them costs.

Below 16 bits the inputs of a product are quantised first, in passes that memory bounds. Times of such products
were measured with the quantisation of one input in them (``hardware.kernels``): read once in 16 bits, written
once. A training step quantises the input forward and its gradient backward, each written twice, along rows and
along columns, by one kernel that reads it once [TE]; over the three products that is as much as what was measured.
Here stands what a recipe moves beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the products of a layer are multiplied."""

    arithmetic: str
    """The format that the device multiplies in: whose peak counts."""
    fit: str
    """The measured products that stand for it."""
    word: float = 2.0
    """Bytes of one value of a product's input, as it is kept for the backward pass."""
    input_traffic: float = 0.0
    """Bytes moved per value of a product's input, and of its gradient, beyond what measured products include."""
    weight_traffic: float = 0.0
    """Bytes moved per weight and micro-batch to quantise it."""
    step_traffic: float = 0.0
    """Bytes moved per weight and iteration to quantise it."""
    transposed: float = 0.0
    """Bytes per value of a product's input, or of its gradient, in kernels that turn rows into columns."""
    rate: float = 1.0
    """Arithmetic rate over that of the products measured."""
    gather_word: float = 2.0
    """Bytes of one gathered weight where quantised weights are gathered."""

    @property
    def reduced(self) -> bool:
        """Whether only the layers' products run in it, the rest in 16 bits."""
        return self.word < 2.0


AMAX = 2.0
"""One more read in 16 bits, for the largest magnitude."""
CAST = 4.0
"""A 16-bit read and two 8-bit writes, along rows and along columns."""
COLUMN = 2.0 + AMAX + 1.0
"""Quantising along columns without a kernel for both: the transpose written, read for its scales and the cast, written
[TorchAO]."""
ROW_SCALED = 0.95
"""Rate of products scaled by rows over those scaled by tensors: 0.9 to 1 for most shapes (GitHub pytorch/pytorch, issue
147971)."""

RECIPES: dict[str, Recipe] = {
    "fp32": Recipe("fp32", "fp32"),
    "fp16": Recipe("fp16", "fp16"),
    "bf16": Recipe("bf16", "bf16"),
    # One scale per tensor, known from earlier steps; weights are quantised once an iteration and kept.
    "fp8": Recipe("fp8", "fp8", 1.0, step_traffic=CAST, gather_word=1.0),
    # One scale per tensor of this very tensor: it is read once more for it.
    "fp8-current": Recipe(
        "fp8", "fp8", 1.0, input_traffic=AMAX, step_traffic=AMAX + CAST, transposed=CAST, gather_word=1.0
    ),
    # One scale per 1 x 128 values of inputs and 128 x 128 weights, found in the kernel that casts.
    "fp8-block": Recipe("fp8", "fp8_block", 1.0, step_traffic=CAST, gather_word=1.0),
    # One scale per row and per column, weights anew for every micro-batch [TorchAO].
    "fp8-rowwise": Recipe(
        "fp8",
        "fp8",
        1.0,
        input_traffic=3.0 + COLUMN - CAST,
        weight_traffic=3.0 + 2.0 + COLUMN,
        transposed=COLUMN,
        rate=ROW_SCALED,
    ),
    # One scale per 32 values; gathered in 16 bits, since rows and columns have scales of their own.
    "mxfp8": Recipe("mxfp8", "mxfp8", 1.0, step_traffic=CAST),
    # One scale per 16 values and one per tensor.
    "nvfp4": Recipe("nvfp4", "nvfp4", 1.0, input_traffic=AMAX, step_traffic=AMAX + 3.0),
}
"""By name. NVFP4's inputs are kept for the backward pass in 8 bits, as before."""

ALIASES: dict[str, str] = {
    "fp8-delayed": "fp8",
    "fp8-tensorwise": "fp8-current",
    "fp8-current-scaling": "fp8-current",
    "fp8-blockwise": "fp8-block",
    "fp8_block": "fp8-block",
    "fp4": "nvfp4",
}
"""Other names of the same recipes."""

PRECISIONS: tuple[str, ...] = tuple(RECIPES)


def known_precision(name: str) -> str:
    """The recipe's own name.

    Raises:
        ValueError: there is no such recipe.
    """
    found = ALIASES.get(name, name)
    if found not in RECIPES:
        raise ValueError(f"precision {name!r} is unknown; {', '.join(PRECISIONS)} are known")
    return found
