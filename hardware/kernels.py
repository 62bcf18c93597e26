"""How fast kernels run on one kind of accelerator: constants fitted to published measurements.

Only constants live here. The formulas that read them are in the cost models; the docstring of every
record states the formula that its constants were fitted with, so that the two cannot drift unnoticed.
"""

import unicodedata
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from hardware.scalars import check_scalar
from hardware.units import TimeQuantity, within

Share = Annotated[float, "", Field(ge=0.001, le=2.0)]
"""A fraction of a nominal figure. Above one only where a fit lets caches pass for memory bandwidth."""
NonNegative = Annotated[float, "", Field(ge=0.0, le=1e12)]
Overhead = Annotated[TimeQuantity, within("0 s", "1 s", "time")]
"""Time lost once per kernel or collective, whatever its size."""


def _printable(text: str) -> str:
    if any(unicodedata.category(char) == "Cc" for char in text):
        raise ValueError(f"expected text without control characters, got {text!r:.60}")
    return text


Label = Annotated[str, AfterValidator(_printable)]
"""What people call something; it reaches terminals and files as it is."""


class Record(BaseModel):
    """A frozen fact. Unknown fields are refused, so that a misspelt one cannot be lost in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _as_it_is(cls, value: object, info: ValidationInfo) -> object:
        """Neither text nor a switch is a number, though pydantic reads "8" and True as 8 and 1."""
        if isinstance(value, bool | str | int) and info.field_name:
            check_scalar(cls.model_fields[info.field_name], value)
        return value


class GemmFit(Record):
    """Dense matrix multiplication of shape m x n x k, FLOP count F = 2 m n k.

    Time = max(F (1 + k_half / k)(1 + area_half / (m n)) / (efficiency sustained P),
    bytes / (memory_efficiency B)) + overhead, with P the dense peak of the data type and B the nominal
    memory bandwidth; below 16 bits of inputs that are quantised already.
    """

    efficiency: Share
    """Share of the dense peak that large multiplications reach in a short burst."""
    k_half: NonNegative = 0.0
    """Inner dimension at which half of the arithmetic rate is lost to filling and draining."""
    area_half: NonNegative = 0.0
    """Output elements (m n) at which half of the arithmetic rate is lost to an under-filled device."""
    memory_efficiency: Share
    """Share of the nominal memory bandwidth when the multiplication is memory bound."""
    overhead: Overhead
    """Launch and drain time of one kernel."""
    word: Annotated[float, "", Field(gt=0.0, le=8.0)] = 2.0
    """Bytes of one value of an input; the output has two."""
    sustained: Share = 1.0
    """Rate in a training loop over the rate in a short burst: the effect of power and clock limits."""
    wgrad_ratio: Annotated[float, "", Field(ge=1.0, le=100.0)] = 1.06
    """Time of the weight gradient (fp32 accumulation) over the time of the forward multiplication."""
    error_median: NonNegative | None = None
    """Median absolute error of the fit on held-out shapes, a fraction; absent if nothing was measured."""
    error_p90: NonNegative | None = None
    """90th percentile of the same."""
    source: str


class AttentionFit(Record):
    """Attention that never writes the score matrix, causal, FLOP count F of the causal half.

    Forward time = F (1 + sequence_half / s)(1 + 128 occupancy compute_units / (b h s))
    / (efficiency P narrow^log2(w / d)) + overhead, with P the dense 16-bit peak, b the batch, h the heads, s the
    sequence, d the width of a head, at most w = ``full_width``.
    The backward pass counts 2.5 F at efficiency x backward_efficiency_ratio, and at ``unequal`` of that where queries
    are wider than values. Where pairs are computed by whole blocks, F counts these.
    """

    efficiency: Share
    """Share of the dense 16-bit peak on long sequences."""
    sequence_half: NonNegative = 0.0
    """Sequence length at which half of the rate is lost."""
    occupancy: NonNegative = 0.0
    """Weight of the loss when there are fewer 128-row tiles than compute units."""
    overhead: Overhead
    """Launch and drain time of one call."""
    backward_efficiency_ratio: Share
    """Arithmetic rate of the backward pass over that of the forward pass."""
    unequal: Share = 1.0
    """Rate of the backward pass with queries of 192 and values of 128 over that with both of 128, per FLOP of F."""
    in_8_bits: dict[str, tuple[Share, Share]] = {}
    """Time of the forward and of the backward kernel in 8 bits over that in 16, the casts aside: fp8, mxfp8, and with
    queries wider than values fp8-unequal, mxfp8-unequal."""
    narrow: Share = 1.0
    """Rate with heads of 64 over that with heads of 128 (fitted there): half the products for as many exponentials."""
    full_width: Annotated[float, "", Field(ge=8.0, le=1024.0)] = 128.0
    """Width of a head from which the rate grows no further: 128, or the side of a larger systolic array."""
    block: NonNegative = 0.0
    """Longer side of the blocks of pairs that the forward pass computes whole, what the mask leaves out of them too;
    0 where blocks are too small to count."""
    backward_block: NonNegative = 0.0
    """The same of the backward pass."""
    error_median: NonNegative | None = None
    """Median absolute error of the forward fit, as a fraction."""
    error_p90: NonNegative | None = None
    """90th percentile of the same."""
    source: str


class MemoryBoundFit(Record):
    """Element-wise, normalisation and softmax kernels: achieved share of the nominal memory bandwidth."""

    fused: Share
    """Hand-fused kernels, forward."""
    stock: Share
    """Stock framework kernels, forward."""
    backward: Share
    """Backward of normalisation layers."""
    source: str


class GroupedFit(Record):
    """Grouped multiplication: one small product per expert, m rows each, F = 2 m n k per group.

    Time = sum over groups of max(F (1 + rows_half / m) / (efficiency of the plain product), bytes /
    (memory_efficiency B)) + group_overhead per group.
    """

    rows_half: NonNegative = 77.0
    """Rows per group at which half of the plain product's rate is lost."""
    memory_efficiency: Share = 0.61
    """Share of the nominal memory bandwidth at which weights stream in."""
    group_overhead: Overhead = 1.1e-6
    """Launch of one more group."""
    stream_efficiency: Share = 0.51
    """Share of the nominal memory bandwidth at which tokens are gathered by expert, activated and put back."""
    source: str = (
        "[simumax] Transformer Engine grouped products: rows_half 23 (A100 PCIe) to 77 (B200), weights at 0.61 of the "
        "bandwidth and 1.1 us a group on A100 PCIe; assumed elsewhere; stream_efficiency assumed like h100-sxm"
    )


class ScanFit(Record):
    """Products of the chunked scan of Mamba-2 mixers, FLOP count F without the blocks that the causal mask leaves out.

    Time = max(F / (efficiency P), bytes / (fused B)) of every kernel, with P the dense 16-bit peak.
    """

    efficiency: Share = 0.069
    """Share of the dense 16-bit peak; low, since tiles are small and registers let few warps run at a time."""
    source: str = (
        "[tileops] chunk scan forward on H200 at 1830 MHz: median 68 TFLOP/s of 19 shapes of five models (32 to 75) at "
        "a fifth of the bandwidth; assumed for the other products, forward and backward, and elsewhere"
    )


class Kernels(Record):
    """Every kernel constant of one kind of accelerator."""

    gemm: dict[str, GemmFit]
    """By data type: bf16 (fp16 is the same), and where measured fp8, fp8_block and nvfp4."""
    attention: dict[str, AttentionFit]
    """By kernel generation: flash-1 (from Turing on), flash-2 (from Ampere on), flash-3 (on Hopper), cudnn, since
    January 2026 cudnn-9.18; memory-efficient is what PyTorch itself has before Ampere, aotriton what it has on AMD,
    triton FlashAttention of 2022 written in Triton (``flash_attn_triton``); on TPU splash, with one kernel for the
    backward pass, and splash-two-pass, with one for queries and one for keys and values."""
    memory_bound: MemoryBoundFit
    grouped: GroupedFit = GroupedFit()
    scan: ScanFit = ScanFit()
    launch: Overhead
    """Host time to launch one kernel without graphs."""
    source: str
    """What the launch time, and whatever is not said below, rests on."""

    @model_validator(mode="after")
    def _has_a_base(self) -> Self:
        if "bf16" not in self.gemm or not self.attention:
            raise ValueError("gemm needs an entry for bf16 and attention at least one")
        return self

    def gemm_fit(self, dtype: str) -> GemmFit:
        """The fit of a data type, or the nearest measured one.

        Args:
            dtype: fp32, tf32, bf16, fp16, int8, fp8, fp8_block, mxfp8, fp4 or nvfp4.

        Returns:
            the fit of the type itself, else of the next wider measured type; bf16 always exists.
        """
        for candidate in (dtype, *_NEAREST_FIT.get(dtype, ())):
            if candidate in self.gemm:
                return self.gemm[candidate]
        return self.gemm["bf16"]


_NEAREST_FIT: Final = {
    "fp8": ("fp8_block",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp8_block", "fp8"),
    "fp4": ("nvfp4", "fp8_block", "fp8"),
    "nvfp4": ("fp8_block", "fp8"),
}
