"""What a request resolves to, and who said so."""

from collections.abc import Mapping

from costmodels.scenario import Scenario
from planner.answer.text import format_whole_count, plural
from planner.request.defaults import length_source, tokens_source
from planner.request.overrides import written
from planner.request.pins import parse_pins
from planner.request.request import PlanRequest
from planner.request.resolve import choices_of, resolve
from planner.search.question import resolve_search


def lines(request: PlanRequest, origins: Mapping[str, str], *, searched: bool) -> list[tuple[str, str, str]]:
    """(field, value, origin) of every value of a request, defaults filled in.

    Args:
        request: the question.
        origins: field, or ``pins.`` and axis, to who gave it.
        searched: whether it is a question to a search, not of a given strategy.

    Raises:
        MeshwrightError: a name that does not exist, or values that contradict each other.
    """
    parse_pins(request.pins)
    resolved = (resolve_search if searched else resolve)(request)
    scenario = resolved.scenario
    machines = " + ".join(
        f"{plural(group.nodes, 'node') if group.nodes else '? nodes'} x {group.gpus_per_node}"
        for group in resolved.cluster.groups
    )
    values = {
        "model": f"{scenario.model.name} ({plural(scenario.model.num_layers, 'layer')})",
        "gpus": str(request.gpus),
        "cluster": f"{resolved.cluster.name} ({machines})",
        "stack": scenario.stack.full_name,
        "global_batch_size": str(scenario.global_batch_size),
        "seq_length": str(scenario.seq_length),
        "tokens": format_whole_count(resolved.tokens),
        "precision": scenario.precision,
        "objective": request.objective,
        "ties": request.ties,
        **({"framework": scenario.framework} if scenario.framework else {}),
        "memory_margin": f"{100.0 * resolved.margin:.3g}%",
        **_experts(scenario),
        "top": str(request.top),
        "time_limit": f"{request.time_limit:g} s" if request.time_limit else "none",
    } | {name: str(value) for name, value in choices_of(request).items()}
    values |= {path: written(value) for path, value in request.changes.items()}
    values |= {f"pins.{axis}": str(pin) for axis, pin in request.pins.items()}
    whose = {
        "seq_length": length_source(request, scenario.model),
        "tokens": tokens_source(scenario.model, tuned=scenario.tuned),
    }
    whose |= dict.fromkeys(request.changes, origins.get("changes", "default"))
    return [(name, value, origins.get(name, whose.get(name, "default"))) for name, value in values.items()]


def _experts(scenario: Scenario) -> dict[str, str]:
    """How tokens fall on experts; nothing for a model without."""
    if scenario.model.moe is None:
        return {}
    capacity = scenario.stack.switches.expert_capacity
    if capacity is not None:
        return {"expert_capacity": f"{capacity:g}"}
    return {"expert_capacity": "none dropped", "expert_imbalance": f"{scenario.stack.experts.expert_imbalance:g}"}
