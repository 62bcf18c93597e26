"""The answer in one plain sentence, as the screen, the page and a notebook say it first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from costmodels.names import SHARDED_PARAMETERS
from planner.answer.plan import Plan, Prediction, Proof, Strategy
from planner.answer.text import (
    BEST,
    LEAST_SHOWN,
    NOTABLE,
    format_count,
    format_days,
    format_dollars,
    format_gib,
    format_percent,
    main_restriction,
    memory_savings,
    plural,
    short_seconds,
    what_works,
    why_infeasible,
)

LONG: Final = 365.0
"""Days of training from which it is said how many tokens they are for."""
_BETTER: Final = {
    "memory": "needs less memory",
    "goodput": "finishes sooner, interruptions counted,",
    "cost": "is cheaper",
    "tokens-per-gpu-hour": "trains more tokens per GPU-hour",
    "mfu": "has a higher MFU",
}
"""What no other strategy is or does, by what the request wants; faster by default."""


def headline(plan: Plan) -> str:
    """What to run, what it takes, and how sure it is that nothing is better; or why there is nothing to run."""
    return " ".join(filter(None, (result(plan), standing(plan))))


def result(plan: Plan) -> str:
    """The first sentence: what to run and what it takes, or why there is nothing to run."""
    short = any(one.rule == "memory" for one in plan.rejected)
    if plan.strategy is None or plan.prediction is None:
        return f"Nothing that was asked for {'fits in memory' if short else 'can run'}: {_why_not(plan)}"
    if plan.status == "infeasible":
        return f"This strategy {'does not fit in memory' if short else 'cannot run'}: {_why_not(plan)}"
    start, what = "Use " if plan.proof is not None else "", ", ".join([degrees(plan.strategy), *_saving(plan.strategy)])
    return f"{start}{what}: {', '.join(_figures(plan, plan.prediction))}."


def standing(plan: Plan) -> str:
    """What follows: how it stands among other strategies, and what may go wrong; "" where there is nothing to run."""
    if plan.prediction is None or plan.status == "infeasible":
        return ""
    return " ".join([*_compared(plan, plan.prediction), *_doubts(plan)])


def _why_not(plan: Plan) -> str:
    """What refuses it, and what works in its place, or how to find that."""
    reason = why_infeasible(plan.model_copy(update={"nearest": None, "nothing_near": ""}))
    if plan.nearest:
        works = f"What works: {what_works(plan.nearest)}."
    elif plan.nothing_near:
        works = f"Nothing near works (tried: {plan.nothing_near})."
    else:
        works = "Plan without a given strategy to find one that does." if plan.strategy else ""
    return f"{reason}. {works}".strip()


def degrees(strategy: Strategy) -> str:
    """The degrees above 1 with the number of replicas: "TP 4, PP 8 (12 chunks per stage), DP 384"."""
    chunks = f" ({strategy.vpp} chunks per stage)" if strategy.vpp > 1 else ""
    said = [("TP", strategy.tp, ""), ("CP", strategy.cp, f" ({strategy.cp_kind})"), ("PP", strategy.pp, chunks)]
    split = [f"{name} {degree}{more}" for name, degree, more in said if degree > 1]
    experts = [f"EP {strategy.ep}"] if strategy.ep > 1 else []
    return ", ".join([*split, *experts, f"DP {strategy.dp}"])


def _saving(strategy: Strategy) -> Iterator[str]:
    """What saves memory at a price: weights sharded, all layers recomputed, states on the host."""
    if strategy.zero_stage >= SHARDED_PARAMETERS and strategy.dp * strategy.cp > 1:
        over = "" if strategy.sharding_degree == strategy.dp * strategy.cp else f" over {strategy.sharding_degree}"
        yield f"ZeRO-{strategy.zero_stage} (FSDP){over}"
    if strategy.recompute == "full":
        yield "full recomputation"
    yield from memory_savings(strategy)


def _figures(plan: Plan, found: Prediction) -> Iterator[str]:
    yield f"{short_seconds(found.iteration_seconds)} per iteration ({format_percent(found.mfu)} MFU)"
    wall = plan.goodput if plan.request.get("objective") == "goodput" else None
    days, dollars = (wall.wall_days, wall.wall_cost_dollars) if wall else (found.training_days, found.cost_dollars)
    yield f"{format_days(days)}{' with interruptions' if wall else ''}{_for_tokens(plan) if days > LONG else ''}"
    if dollars is not None:
        yield format_dollars(dollars)
    if plan.request.get("objective") == "memory" and plan.memory_bytes:
        yield f"{format_gib(plan.value)} GiB on the fullest GPU"


def _for_tokens(plan: Plan) -> str:
    """How many tokens are trained on, and whether nobody but the model says so."""
    tokens = plan.request.get("tokens")
    whose = "the model's " if any(said.endswith("training tokens (the model's)") for said in plan.defaults) else ""
    return f" for {whose}{format_count(tokens)} tokens" if isinstance(tokens, int) else ""


def _compared(plan: Plan, found: Prediction) -> Iterator[str]:
    """How it stands among the strategies that were searched, or against the best where it is a given one."""
    if plan.proof is not None:
        yield _proved(plan, plan.proof)
        if tied := sum(other.tied for other in plan.alternatives):
            yield f"{plural(tied, 'other')} may turn out as fast when measured."
        return
    best = next((line.iteration_seconds for line in plan.why_not if line.subject == BEST), None)
    beyond = found.iteration_seconds / best - 1.0 if best else 0.0
    if beyond > NOTABLE:
        yield f"The best plan takes {format_percent(1.0 - 1.0 / (1.0 + beyond))} less time."
    elif best:
        yield "No plan that was found is faster."


def _proved(plan: Plan, proof: Proof) -> str:
    restricted = main_restriction(proof.scope, plan.strategy).removeprefix("among strategies ")
    among = f"{proof.candidates:,} strategies {restricted}".rstrip()
    if proof.fastest_seconds is not None:
        behind = plan.value / proof.fastest_seconds - 1.0
        near = f"within {behind:.2%} of" if behind >= LEAST_SHOWN else "as fast as"
        return f"It is {near} the fastest of the {among} in the model, and safer: Risk says why."
    if plan.proved:
        better = _BETTER.get(str(plan.request.get("objective")), "is faster")
        return f"No other of the {among} {better} in the model."
    far = f"at most {format_percent(proof.gap)} faster" if proof.gap < 1.0 else "better by an unknown margin"
    return (
        f"It is the best found in {short_seconds(proof.wall_seconds)}, not proved: another of the {among} may be {far}."
    )


def _doubts(plan: Plan) -> Iterator[str]:
    if plan.saving_memory:
        yield f"{plan.saving_memory.text[:1].upper()}{plan.saving_memory.text[1:]}."
    if not plan.fits:
        yield "It is likely to run out of memory."
