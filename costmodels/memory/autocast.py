"""What layers keep beyond 16 bits under PyTorch's autocast, where weights in fp32 are whole on every rank.

Autocast casts what products read, and runs norms and softmax in fp32 [Autocast]. An embedding in fp32 so makes a
residual stream in fp32, and every product of one norm's output keeps a cast of its own. Full sharding and DeepSpeed
cast weights themselves, and the residual stream has 16 bits.
"""

from __future__ import annotations

import numpy as np

from costmodels.layer.elementwise import norms_of
from costmodels.model.layer_kinds import Kind
from costmodels.names import SHARDED_GRADIENTS, WORD
from costmodels.scenario import Scenario
from costmodels.strategy import Bools, Floats, Strategies

_WIDER = 4.0 - WORD
"""Bytes by which a value in fp32 is wider."""
_FURTHER_CASTS = {"qkv": 2, "gate": 1}
"""Products of one input beyond the first where they are layers of their own."""


def is_autocast(strategies: Strategies, scenario: Scenario) -> Bools:
    """Where weights in fp32 that all train are cast for every product, (N,).

    In programs that shard fully, stage 1 is that too, with gradients whole for a pipeline, and casts as it does. Which
    layouts of the others cast so is the stack's.
    """
    whole = 1 if scenario.stack.sharding.fsdp_stage2 else SHARDED_GRADIENTS
    cast = {"whole": True, "unsplit": strategies.tp * strategies.pp == 1, "never": False}[
        scenario.stack.states.autocast
    ]
    return _keeps_wide_weights(scenario) & (strategies.zero_stage < whole) & cast


def autocast_axes(scenario: Scenario) -> tuple[str, ...]:
    """What it depends on."""
    split = ("tp", "pp") if scenario.stack.states.autocast == "unsplit" else ()
    return ("zero_stage", *split) if _keeps_wide_weights(scenario) else ()


def _keeps_wide_weights(scenario: Scenario) -> bool:
    return scenario.stack.states.weight_bytes > WORD and scenario.precision != "fp32" and not scenario.frozen


def residual_bytes(strategies: Strategies, scenario: Scenario) -> Floats:
    """Bytes per value of the residual stream beyond 16 bits, (N,)."""
    return np.where(is_autocast(strategies, scenario), _WIDER, 0.0)


def wide_bytes(scenario: Scenario, kind: Kind) -> float:
    """Bytes per token of the residual stream that a layer keeps in fp32, and of casts: all of the whole width.

    A compiler keeps one tensor of the stream for a layer, and casts again. Models with a gated network that programs
    bring have layers of their own for each, as Transformers' Llama and those after it.
    """
    h, stack = float(scenario.model.hidden_size), scenario.stack
    if stack.switches.fused_elementwise:
        return layer_input_bytes(scenario)
    present = {"qkv": kind.attends, "gate": kind.ffn == "dense" and scenario.model.gated_ffn}
    apart = _FURTHER_CASTS if stack.own_model and scenario.model.gated_ffn else stack.kernels.split_projections
    casts = sum(_FURTHER_CASTS[name] * present[name] for name in apart)
    return (_WIDER * norms_of(scenario, kind) + scenario.word * casts) * h


def layer_input_bytes(scenario: Scenario) -> float:
    """Bytes per token of the residual stream in fp32 that a layer is given, which it keeps whatever it repeats."""
    return _WIDER * float(scenario.model.hidden_size)


def score_bytes(scenario: Scenario) -> float:
    """Bytes per score of unfused attention beyond 16 bits: softmax in fp32, and its cast where no dropout makes one."""
    stack = scenario.stack
    if (
        scenario.rates.attention is not None
        or stack.kernels.attention_block
        or "softmax" in stack.kernels.saved_tensors
    ):
        return 0.0
    return _WIDER + (0.0 if stack.switches.dropout else scenario.word)
