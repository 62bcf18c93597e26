"""Number formats of the layers' matrix products, and what turning their inputs into them costs.

Below 16 bits the inputs of a product are quantised first, in passes that memory bounds; the times of products
(``hardware.kernels``) are without them. A training step quantises the input forward and the output's gradient
backward, each for two products. Before Blackwell matrix units take 8-bit values of both inputs along the depth only,
so that one scale per tensor asks for a transposed copy too; blocks along the depth have scales of their own either way,
on every device [TE].
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


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
    """Bytes moved per value of a product's input, and of its output's gradient, to quantise it."""
    rows_traffic: float = 0.0
    """Of them, those for the one product that reads rows, where no weight has a gradient."""
    columns: float = 0.0
    """Further bytes where products take 8-bit values along the depth only."""
    casts: int = 0
    """Kernels that quantise one tensor."""
    separate_traffic: float = 0.0
    """Further bytes where what one kernel writes along rows and along turned columns takes two."""
    weight_traffic: float = 0.0
    """Bytes moved per weight and micro-batch to quantise it."""
    step_traffic: float = 0.0
    """Bytes moved per weight and iteration to quantise it."""
    transposed: float = 0.0
    """Bytes per value of a product's input, or of its gradient, in kernels that turn rows into columns."""
    by_layer: bool = False
    """Every layer quantises its own input, also where several layers read the same."""
    rescaled: float = 0.0
    """Bytes per value that the two backward products return, to scale it afterwards."""
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
ROWS = 3.0
"""A 16-bit read and an 8-bit write."""
CAST = ROWS + 1.0
"""The same with a second write, along columns."""
BLOCKS = CAST + 6.0 / 32.0
"""With a scale of one byte for every 32 values, along rows and along columns, which is written, read and laid out as
the product wants it [TE]."""
HADAMARD = AMAX + 2.0 + 2.0 * 0.5
"""NVFP4: one pass for the tensor's scale, and one that writes rows, and columns turned by a Hadamard transform [TE]."""
COLUMN = 2.0 + AMAX + 1.0
"""Quantising along columns without a kernel for both: the transpose written, read for its scales and the cast, written
[TorchAO]."""
ROW_SCALED = 0.95
"""Rate of products scaled by rows over those scaled by tensors: 0.9 to 1 for most shapes (GitHub pytorch/pytorch, issue
147971)."""

_FP8 = Recipe(
    "fp8", "fp8", 1.0, input_traffic=ROWS, rows_traffic=ROWS, columns=1.0, casts=1, step_traffic=CAST, gather_word=1.0
)
"""One scale per tensor, known from earlier steps; weights are quantised once an iteration and kept."""
_BY_ROW = replace(_FP8, columns=0.0, casts=2, step_traffic=0.0, gather_word=2.0)
"""Scales of rows, found in this very tensor for every product, of weights anew for every micro-batch."""

RECIPES: dict[str, Recipe] = {
    "fp32": Recipe("fp32", "fp32", 4.0),
    "fp16": Recipe("fp16", "fp16"),
    "bf16": Recipe("bf16", "bf16"),
    "fp8": _FP8,
    # One scale per tensor of this very tensor: it is read once more for it, and the scale computed.
    "fp8-current": replace(
        _FP8, input_traffic=AMAX + ROWS, rows_traffic=AMAX + ROWS, casts=3, step_traffic=AMAX + CAST, transposed=CAST
    ),
    # One scale per 1 x 128 values of inputs and 128 x 128 weights, found in the kernel that casts.
    "fp8-block": replace(_FP8, fit="fp8_block", input_traffic=CAST, columns=0.0),
    # One scale per row and per column [TorchAO].
    "fp8-rowwise": replace(
        _BY_ROW,
        input_traffic=ROWS + COLUMN,
        weight_traffic=ROWS + 2.0 + COLUMN,
        transposed=COLUMN,
        by_layer=True,
        rescaled=4.0,
        rate=ROW_SCALED,
    ),
    # Integers with one scale per row of every product: inputs, weights and gradients are read for their largest
    # magnitude and cast once for each of the two products that they meet along different dimensions [MaxText].
    "int8": replace(
        _BY_ROW,
        arithmetic="int8",
        fit="int8",
        input_traffic=2.0 * (AMAX + ROWS),
        rows_traffic=AMAX + ROWS,
        weight_traffic=2.0 * (AMAX + ROWS),
    ),
    # One scale per 32 values; gathered in 16 bits, since rows and columns have scales of their own.
    "mxfp8": Recipe(
        "mxfp8", "mxfp8", 1.0, input_traffic=BLOCKS, rows_traffic=ROWS + 3.0 / 32.0, casts=1, step_traffic=BLOCKS
    ),
    # One scale per 16 values and one per tensor.
    "nvfp4": Recipe(
        "nvfp4",
        "nvfp4",
        1.0,
        input_traffic=HADAMARD,
        rows_traffic=HADAMARD - 0.5,
        casts=2,
        separate_traffic=2.0,
        step_traffic=AMAX + ROWS,
    ),
}
"""By name. NVFP4's inputs are kept for the backward pass in 8 bits, like those of the others."""

IN_TWO: dict[str, Recipe] = {
    name: replace(recipe, input_traffic=recipe.input_traffic + recipe.separate_traffic, casts=recipe.casts + 1)
    for name, recipe in RECIPES.items()
    if recipe.separate_traffic
}
"""Recipes whose rows and columns are written by a kernel each, as Transformer Engine did before 2.14 [TE]."""

ALIASES: dict[str, str] = {
    "fp8-delayed": "fp8",
    "fp8-tensorwise": "fp8-current",
    "fp8-current-scaling": "fp8-current",
    "fp8-blockwise": "fp8-block",
    "fp8-hybrid": "fp8",
    "fp8-e4m3": "fp8",
    "fp8-ds": "fp8",
    "fp8-cs": "fp8-current",
    "fp8-sc": "fp8-block",
    "fp8-mx": "mxfp8",
    "fp4": "nvfp4",
    "float32": "fp32",
    **dict.fromkeys(("float16", "half", "amp-fp16", "fp16-mixed"), "fp16"),
    **dict.fromkeys(("bfloat16", "amp-bf16", "bf16-mixed"), "bf16"),
}
"""Other names of the same recipes: Megatron-Bridge's of 8 bits, PyTorch's, Lightning's and Composer's of 16."""

PRECISIONS: tuple[str, ...] = tuple(RECIPES)


def known_precision(name: str) -> str:
    """The recipe's own name.

    Raises:
        ValueError: there is no such recipe.
    """
    lowered = re.sub(r"[\s_]+", "-", name.strip().lower())
    found = ALIASES.get(lowered, lowered)
    if found not in RECIPES:
        raise ValueError(f"unknown precision {name!r}; there are {', '.join(PRECISIONS)}")
    return found
