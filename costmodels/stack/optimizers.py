"""What an optimizer keeps per parameter, what its step moves, and what it multiplies.

A stack says what Adam keeps and moves (``optimizer_bytes``, ``optimizer_traffic``: master weights and two fp32
moments); here stands how other optimizers differ from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from costmodels.names import WORD
from costmodels.stack.stack import Stack

ADAM_MOMENTS = 8.0
"""Bytes per parameter of Adam's two moments in fp32."""
BLOCK_SCALES = 2.0 * 4.0 / 256.0
"""Two fp32 scales per block of 256 values [Dettmers21]."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Per parameter: bytes kept besides the master weight, bytes moved beyond reading and writing these."""

    moments: float
    edge_moments: float
    """The same of embedding and head, which are not orthogonalised."""
    extra_traffic: float = 0.0
    roots: bool = True
    """Whether a step takes roots of second moments, which are half of what is kept."""


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS),
    "adam-bf16": Optimizer(4.0, 4.0),
    "adam-8bit": Optimizer(2.0 + BLOCK_SCALES, 2.0 + BLOCK_SCALES),
    "adam-4bit": Optimizer(1.0 + 2.0 * 4.0 / 128.0, 1.0 + 2.0 * 4.0 / 128.0),  # blocks of 128 values [TorchAO]
    # Second moments of whole rows or heads, for which squares are written and averaged [Zhang24].
    "adam-mini": Optimizer(4.0, 4.0, extra_traffic=12.0, roots=False),
    # A slow first moment in addition to the fast one [Pagliardini24].
    "ademamix": Optimizer(12.0, 12.0),
    "ademamix-8bit": Optimizer(3.0 + 1.5 * BLOCK_SCALES, 3.0 + 1.5 * BLOCK_SCALES),
    # An average of the weights in place of a first moment, which each step reads once more [Defazio24].
    "schedule-free-adam": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS, extra_traffic=8.0),
    # Two passes: the update is written, read for its norm and the weight's, and read again to be applied [You20].
    "lamb": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS, extra_traffic=20.0),
    "sgd": Optimizer(4.0, 4.0),
    "sgd-plain": Optimizer(0.0, 0.0, roots=False),
    "lion": Optimizer(4.0, 4.0, roots=False),
    "lion-8bit": Optimizer(1.0 + BLOCK_SCALES / 2.0, 1.0 + BLOCK_SCALES / 2.0, roots=False),
    "adagrad": Optimizer(4.0, 4.0),
    "rmsprop": Optimizer(4.0, 4.0),
    "sophia": Optimizer(ADAM_MOMENTS, ADAM_MOMENTS, roots=False),
    # Factors of rows and columns are too small to count; the gradient is read for them and to be clipped [Shazeer18].
    "adafactor": Optimizer(0.0, 0.0, extra_traffic=8.0),
    # As Adafactor, with a first moment; the update and its distance from that are written and read [Luo23].
    "came": Optimizer(4.0, 4.0, extra_traffic=24.0, roots=False),
    # The momentum is written for the orthogonalisation in 16 bits, and its result read [Moonlight25].
    "muon": Optimizer(4.0, ADAM_MOMENTS, extra_traffic=2.0 * WORD),
}

_WRITTEN: Final = {
    "adam": (
        "adamw adamwtorch adamwtorchfused adamwfused adamwhf adamwapexfused adamwtorchnpufused adamwtorchxla adamwxla "
        "adamwanyprecision adamw32bit adam32bit pagedadamw pagedadamw32bit pagedadam pagedadam32bit fusedadam "
        "fusedadamw cpuadam cpuadamw deepspeedcpuadam stableadamw radam nadam adamax"
    ),
    "adam-8bit": "adam8bit adamw8bit adamwbnb8bit adamwtorch8bit pagedadamw8bit pagedadam8bit adamw8bitbnb",
    "adam-4bit": "adam4bit adamw4bit adamwtorch4bit",
    "adam-mini": "adammini",
    "ademamix": "ademamix pagedademamix32bit pagedademamix",
    "ademamix-8bit": "ademamix8bit pagedademamix8bit",
    "schedule-free-adam": "schedulefreeadamw schedulefreeadam schedulefreeradam adamwschedulefree",
    "lamb": "fusedlamb",
    "sgd": "fusedsgd schedulefreesgd sgdmomentum",
    "lion": "lion32bit pagedlion32bit pagedlion fusedlion",
    "lion-8bit": "lion8bit pagedlion8bit",
    "rmsprop": "rmspropbnb rmspropbnb32bit",
    "sophia": "sophiag",
    "came": "camepytorch",
    "muon": "distmuon",
}
"""What frameworks call them, in lower case and without separators (``OptimizerNames`` of [Transformers], DeepSpeed)."""
ALIASES: Final = {word: name for name, words in _WRITTEN.items() for word in words.split()}
_RANKED: Final = ("galore", "apollo", "qgalore", "flora", "lomo", "adalomo", "soap", "shampoo")
"""How optimizers begin whose states depend on ranks, or on whole matrices, that nothing says."""


def named_optimizer(word: str) -> str:
    """The optimizer behind a framework's word for it, or the word, where none is known by it.

    Paged states, which leave the device only where it is full, are those of the same optimizer.

    Raises:
        ValueError: its states cannot be counted by the parameter.
    """
    plain = "".join(letter for letter in word.lower() if letter.isalnum())
    if plain.startswith(_RANKED):
        raise ValueError(
            f"{word} is not priced: its states do not have a fixed number of bytes per parameter; "
            "adafactor is the nearest"
        )
    own = {name.replace("-", ""): name for name in OPTIMIZERS}
    return own.get(plain) or ALIASES.get(plain, word)


ONE_PASS = 38
"""Bytes per parameter that a step in one kernel moves at most; PyTorch's multi-tensor AdamW moves 92 of fp32 states."""


def root_bytes(stack: Stack) -> float:
    """Bytes per parameter of the second moments' roots, which a step that is no single kernel writes to memory.

    ``_foreach_sqrt`` in torch/optim/adamw.py, of all parameters of a rank at once.
    """
    chosen = optimizer_of(stack)
    return chosen.moments / 2.0 if stack.states.optimizer_traffic > ONE_PASS and chosen.roots else 0.0


def optimizer_of(stack: Stack) -> Optimizer:
    """What the stack trains with."""
    return OPTIMIZERS[stack.switches.optimizer]


def kept_bytes(stack: Stack, *, fp32: bool = False) -> float:
    """Bytes per parameter of master weights and moments; weights kept in fp32 are their own master."""
    narrow = 2.0 if stack.switches.main_params == "fp16" else 0.0
    masters = 0.0 if fp32 else stack.states.optimizer_bytes - ADAM_MOMENTS - narrow
    return masters + optimizer_of(stack).moments


def is_narrow(stack: Stack) -> bool:
    """Whether weights and gradients have 16 bits at most and nothing is kept in fp32 but what moments are."""
    states = stack.states
    return max(states.weight_bytes, stack.gradients.gradient_bytes) <= WORD and states.optimizer_bytes == ADAM_MOMENTS


def step_traffic_bytes(stack: Stack) -> float:
    """Bytes per parameter that clip, step and cast move: what is kept is read and written.

    Where weights, gradients and moments all have 16 bits, and no masters stand behind them, the kernels of a step in
    fp32 move half as much (``_multi_tensor_adamw`` and ``_fused_adamw`` of torch/optim/adamw.py make what they need in
    the format of the parameters).
    """
    chosen = optimizer_of(stack)
    if chosen is OPTIMIZERS["adam-bf16"] and is_narrow(stack):
        return stack.states.optimizer_traffic * WORD / 4.0
    kept = chosen.moments - ADAM_MOMENTS - (2.0 if stack.switches.main_params == "fp16" else 0.0)
    return stack.states.optimizer_traffic + 2.0 * kept + chosen.extra_traffic
