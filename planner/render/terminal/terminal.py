"""The screen: assumptions first, the answer, where the time and the memory go, the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from planner.answer.plan import Advice, Plan, Prediction, Proof, Rejection, Strategy, Trust
from planner.answer.text import (
    BEST,
    CUT_SHORT,
    NOTABLE,
    format_days,
    format_dollars,
    format_percent,
    format_prefixed,
    main_restriction,
    name_in,
    plural,
    short_seconds,
    three_digits,
)
from planner.errors import BadRequest
from planner.jobs.preview import block, device_refusal, launch, other_launcher
from planner.render.terminal.bars import flow
from planner.render.terminal.panels import (
    SIDE_BY_SIDE,
    along_the_pipeline,
    alternatives_table,
    goodput_lines,
    layers_per_stage,
    machine_facts,
    memory_panel,
    model_facts,
    recomputation,
    time_panel,
)
from planner.render.terminal.tables import columns, grid, headed, indented, printable, speaks_utf
from planner.request.overrides import written


def render(plan: Plan, console: Console) -> None:
    """Print a plan on a console, within its width, with what its encoding can show."""
    plan = printable(plan, console)
    blocks = console.is_terminal and speaks_utf(console)
    for part in _parts(plan, console.width, blocks=blocks):
        console.print(part, overflow="fold")


def _parts(plan: Plan, width: int, *, blocks: bool) -> Iterator[RenderableType]:
    yield from _header(plan, width)
    if plan.status == "infeasible":
        yield from _refusal(plan)
    if plan.strategy is None or plan.prediction is None:
        return
    yield ""
    yield from _answer(plan.strategy, plan.prediction, width, windowed=_windowed(plan.request))
    if plan.goodput:
        yield Text(goodput_lines(plan.goodput, width))
    if not plan.fits:
        yield Text("  does not fit the memory of the device", style="bold red")
    yield ""
    panels = time_panel(plan, blocks=blocks), memory_panel(plan.memory_bytes)
    if width >= SIDE_BY_SIDE:
        both = Table.grid(padding=(0, 4, 0, 0))
        both.add_row(*panels)
        yield both
    else:
        yield from (panels[0], "", panels[1])
    for warning in plan.warnings:
        yield indented(Text(f"careful: {warning}", style="yellow"))
    if plan.alternatives or not plan.alternatives_complete:
        yield from headed("Alternatives", alternatives_table(plan, width=width - 2))
        yield from _ties(plan)
    yield from _advice("Why not", plan.why_not)
    yield from _advice("What would help", plan.what_helps)
    yield from _evidence(plan)
    if plan.status != "infeasible" and plan.fits:
        yield from _launch(plan, plan.strategy, width)
        yield from ("", _quote(plan, plan.strategy, plan.prediction, width))


def _ties(plan: Plan) -> Iterator[RenderableType]:
    """What the mark of tied alternatives means, which of them is better validated, and whether there may be others."""
    if not plan.alternatives_complete:
        yield indented(Text(CUT_SHORT, style="dim"))
    if any(other.tied for other in plan.alternatives):
        yield indented(Text("= tied: more than one chance in three that it is faster", style="dim"))
    if better := plan.better_validated:
        yield indented(Text(f"--ties validated takes {better.subject}: {better.text}"))


def _evidence(plan: Plan) -> Iterator[RenderableType]:
    """What others ran and measured that is most like the plan."""
    if plan.closest_run:
        yield from headed("Closest published run", Text(plan.closest_run))
    elif plan.trust:
        yield from headed("Closest measured runs")
    if plan.trust:
        yield from _trust(plan.trust)


def _trust(found: Trust) -> Iterator[RenderableType]:
    """The measured runs nearest to the plan, and how well each is predicted."""
    yield indented(Text(f"nearest measured runs: distance (0: alike), error ({_where(found)})", style="dim"))
    for run in found.nearest:
        machines = f"{run.gpus:,} {run.accelerator}"
        said = f"{run.distance:.1f}  {run.error:+.1%}  {run.model}, {machines}, {run.stack}, {run.layout} ({run.group})"
        yield indented(Text(said))


def _where(found: Trust) -> str:
    """Whether the plan is in the validated region; where it is outside, by its distance or by its degrees."""
    if found.inside:
        return f"inside the validated region, up to {found.region:.1f}"
    beyond = f"{', '.join(found.beyond)} in measured runs" if found.beyond else ""
    if not found.nearest or found.nearest[0].distance > found.region:
        return f"outside the validated region, up to {found.region:.1f}{beyond and f'; {beyond}'}"
    return f"within {found.region:.1f}, but outside the validated region: {beyond}"


def _header(plan: Plan, width: int) -> Iterator[Text]:
    yield _line(name_in(plan.request.get("model")), model_facts(plan.request), width)
    yield _line(name_in(plan.request.get("cluster")), machine_facts(plan.request), width)
    if changes := plan.request.get("changes"):
        said = _listed([f"{path} = {written(value)}" for path, value in changes.items()], ";")
        yield Text(flow(["set:", *said], width=width, indent=0, gap=" "))
    if plan.defaults:
        yield Text(flow(["assumed:", *_listed(plan.defaults, ";")], width=width, indent=0, gap=" "), style="dim")
    if plan.proof is not None:
        yield _proof(plan.status, plan.proof)
    elif plan.status != "infeasible":
        yield Text("one strategy priced, no search", style="dim")


def _listed(parts: Sequence[str], sign: str) -> list[str]:
    return [f"{part}{sign}" for part in parts[:-1]] + list(parts[-1:])


def _proof(status: str, proof: Proof) -> Text:
    counts = f"{proof.feasible:,} of {proof.candidates:,} strategies feasible; "
    took = f"in {short_seconds(proof.wall_seconds)}"
    if status == "optimal" or proof.fastest_seconds is not None:
        return Text(f"{counts}optimum proved {took}").append(f": {proof.statement}", style="dim")
    if status == "infeasible":
        return Text(f"{counts}proved {took}").append(f": {proof.statement}", style="dim")
    far = f"at most {format_percent(proof.gap)} from the optimum" if proof.gap < 1.0 else proof.statement
    return Text(f"{counts}best found {took}, not proved: {far}")


def _windowed(request: Mapping[str, Any]) -> bool:
    model = request.get("model")
    return isinstance(model, Mapping) and model.get("sliding_window") is not None


def _answer(strategy: Strategy, prediction: Prediction, width: int, *, windowed: bool) -> Iterator[Text]:
    yield Text(flow(degrees(strategy), width=width), style="bold green")
    yield Text(flow(switches(strategy), width=width), style="green")
    yield from (Text(line, style="green") for line in along_the_pipeline(strategy))
    yield Text()
    interval = prediction.interval
    speed = [
        f"iteration   {short_seconds(prediction.iteration_seconds)}",
        f"MFU {format_percent(prediction.mfu)}",
        f"{three_digits(prediction.model_tflops_per_gpu)} TFLOP/s per GPU",
        f"{format_prefixed(prediction.tokens_per_second)} tokens/s",
    ]
    yield Text(flow(speed, width=width), style="bold")
    likely = f"{interval.coverage:.0%} interval {short_seconds(interval.low)} to {short_seconds(interval.high)}"
    attention = "attention within the window" if windowed else "full attention"
    counted = [f"MFU of model FLOPs, {attention}"]
    if prediction.hfu > prediction.mfu:
        counted.append(f"HFU {format_percent(prediction.hfu)} with recomputation")
    yield Text(flow([likely, *counted], width=width, indent=14), style="dim")
    yield Text(flow(_training(prediction), width=width))


def degrees(strategy: Strategy) -> list[str]:
    """The degrees of a strategy as the answer shows them."""
    schedule = strategy.schedule.replace("1f1b", "1F1B").replace("-", " ")
    chunks = f", VPP {strategy.vpp}" if strategy.vpp > 1 else ""
    experts = [f"EP {strategy.ep}", f"ETP {strategy.etp}"] if strategy.ep > 1 else []
    kind = f" ({strategy.cp_kind})" if strategy.cp > 1 else ""
    degrees = [f"TP {strategy.tp}", f"CP {strategy.cp}{kind}", f"PP {strategy.pp}", f"DP {strategy.dp}"]
    pipeline = "no pipeline" if strategy.pp == 1 else f"{schedule}{chunks}"
    return [*degrees, *experts, pipeline, layers_per_stage(strategy)]


def switches(strategy: Strategy) -> list[str]:
    """How it is run, apart from its degrees."""
    whole = strategy.sharding_degree in {1, strategy.dp * strategy.cp}
    over = "" if whole else f" over {strategy.sharding_degree} ranks"
    again = recomputation(strategy)
    return [
        f"micro-batch {strategy.micro_batch_size} x {strategy.num_microbatches}",
        f"ZeRO-{strategy.zero_stage}{over}" if strategy.zero_stage else "no sharding",
        "sequence parallel" if strategy.sequence_parallel else "no sequence parallel",
        "no recompute" if again == "none" else f"recompute {again}",
        *([f"offload {strategy.offload}"] if strategy.offload != "none" else []),
        f"ranks {strategy.rank_order}",
        *(["vocabulary over all stages"] if strategy.vocabulary == "spread" else []),
    ]


def _training(prediction: Prediction) -> list[str]:
    cost = prediction.cost_dollars
    return [
        f"training    {format_days(prediction.training_days)}",
        plural(prediction.iterations, "iteration"),
        f"{format_prefixed(prediction.gpu_hours)} GPU-hours",
        format_dollars(cost) if cost is not None else "",
        f"{three_digits(prediction.energy_megawatt_hours)} MWh",
    ]


def _advice(heading: str, advice: Iterable[Advice]) -> Iterator[RenderableType]:
    if rows := [(Text(one.subject), Text(one.text)) for one in advice]:
        yield from headed(heading, columns(rows, {"max_width": 24}))


def _refusal(plan: Plan) -> Iterator[RenderableType]:
    alone = plan.strategy is not None  # priced as asked; what speaks against it follows its price
    said = "This strategy does not fit." if alone else "Nothing fits this request."
    yield from ("", Text(said, style="bold red"))
    if plan.rejected:
        yield from headed("Refused by", refused(plan.rejected))
    if not alone:
        yield from _advice("Why not", plan.why_not)
    yield from nearest_that_works(plan.nearest, plan.nothing_near)


def nearest_that_works(nearest: Advice | None, tried: str) -> Iterator[RenderableType]:
    """What works in place of what was asked for, or what was tried in vain."""
    yield from _advice("Nearest that works", [nearest] if nearest else [])
    if tried:
        yield from headed("Nothing near works", Text(f"tried: {tried}"))


def refused(rejected: Iterable[Rejection]) -> Table:
    """What refused strategies, how many, and one of them."""
    table = grid("rule", "refused", "for example", left=(0, 2))
    table.columns[1].no_wrap = True
    for one in rejected:
        table.add_row(one.rule, f"{one.count:,}", Text(one.example))
    return table


def _launch(plan: Plan, strategy: Strategy, width: int) -> Iterator[RenderableType]:
    if other := other_launcher(plan):
        text = other if device_refusal(plan) else f"{other}; --format args writes the plan as arguments of Megatron-LM"
        yield from headed("Launch", Text(text))
        return
    try:
        start = launch(plan, strategy)
    except BadRequest as error:
        yield from headed("Launch", Text(str(error)))
        return
    yield from headed("Launch (--format args prints one line)")
    for remark in start.remarks:
        yield Text(_comment(remark, width), style="dim")
    yield Text("\n".join(block(start.words, width)))


def _comment(remark: str, width: int) -> str:
    """A remark that a shell skips when it is pasted along."""
    lines = flow(remark.split(), width=width - 4, indent=0, gap=" ").splitlines()
    return "\n".join(f"  # {line}" for line in lines)


def _quote(plan: Plan, strategy: Strategy, prediction: Prediction, width: int) -> Text:
    gpus = plan.request.get("gpus", strategy.tp * strategy.cp * strategy.pp * strategy.dp)
    name = name_in(plan.request.get("model"))
    subject = f"{'the job' if name == 'given' else name} on {plural(gpus, 'GPU')}"
    kind = f" ({strategy.cp_kind})" if strategy.cp > 1 else ""
    degrees = {
        "TP": strategy.tp,
        "CP": f"{strategy.cp}{kind}",
        "PP": strategy.pp,
        "VPP": strategy.vpp,
        "EP": strategy.ep,
    }
    split = [f"{name} {degree}," for name, degree in degrees.items() if str(degree) != "1"]
    figures = [
        f"{short_seconds(prediction.iteration_seconds)} per iteration",
        f"{format_percent(prediction.mfu)} MFU",
        format_days(prediction.training_days),
        *_proved(plan),
        *([plan.saving_memory.text] if plan.saving_memory else []),
        *_beyond_best(plan, prediction.iteration_seconds),
    ]
    said = [f"{subject}:", *split, f"DP {strategy.dp}:", *_listed(figures, ",")]
    return Text(flow(said, width=width - 1, indent=0, gap=" ") + ".", style="bold")


def _beyond_best(plan: Plan, seconds: float) -> list[str]:
    """How much longer a configuration that somebody runs takes than the best plan beside it."""
    best = next((line.iteration_seconds for line in plan.why_not if line.subject == BEST), None)
    beyond = seconds / best - 1.0 if best else 0.0
    return [f"{format_percent(beyond)} longer than the best plan"] if beyond > NOTABLE else []


def _proved(plan: Plan) -> list[str]:
    """What the proof says of the plan, in a few words."""
    if plan.proof and plan.proof.fastest_seconds is not None:
        return [f"{100.0 * plan.proof.gap:.2f} % from the proved optimum"]
    if plan.status != "optimal" or plan.proof is None:
        return []
    return [f"proved optimal in the model {main_restriction(plan.proof.scope)}".rstrip()]


def _line(name: str, facts: Iterable[str], width: int) -> Text:
    text = Text(flow([f"{name:<14}", *facts], width=width, indent=0, gap="  "))
    text.stylize("bold", 0, len(name))
    return text
