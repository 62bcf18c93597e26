"""Wording: quantities as a sentence says them, and what is said where one is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

from costmodels.names import SHARDED_GRADIENTS
from hardware.units import format_quantity

if TYPE_CHECKING:
    from planner.answer.plan import Advice, Plan, Strategy

_SECONDS: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

SHORT_TERMS: Final[Mapping[str, str]] = {
    "tp": "TP traffic",
    "cp": "CP traffic",
    "pp": "PP transfers",
    "ep": "EP traffic",
    "dp": "DP traffic",
    "slack": "fragmentation",
}
"""Terms of an iteration, and parts of a device's memory, as a sentence has them; others keep their name."""
NOTABLE = 0.0005
"""Relative change below which something helps nothing."""
WORTH_SHOWING: Final = 0.01
"""Share of the time from which a plan beyond the question's limits is shown."""
LEAST_SHOWN: Final = 0.00005
"""Share that two decimals of a per cent show."""
NOT_KNOWN = "not known: the search for it ended before anything was found"
"""Of a search that its budget ended with nothing to show."""
CUT_SHORT = "not all were looked at: there may be better alternatives than these"
"""Of runners-up of which not all were looked at."""

BEST = "the best plan"
"""Name of the alternative to a configuration that somebody runs."""
WITHOUT = " (nothing fits without)"
"""End of the remark that something that saves memory was not asked for."""
BY_GROUP = "launchers give every stage the same degrees, but this plan's differ between node groups"
"""Why no framework's files start a plan over several node groups."""
SHARDED_OVER: Final = "with states sharded over "
"""Begin of the restriction that says over how many ranks."""
NO_OFFLOADING = "without offloading"
"""What a proof leaves out unless it is asked for: the restriction that most often matters."""


def probability_words(chance: float) -> str:
    """A probability in whole percent, of which none is called certain or impossible."""
    return "more than 99%" if chance > 0.99 else "less than 1%" if chance < 0.01 else f"{chance:.0%}"


def format_seconds(value: float) -> str:
    """Seconds as a sentence says them."""
    if value == 0:
        return "0 s"
    if 1.0 <= abs(value) < 1000.0:  # minutes are hard to compare with other seconds
        return f"{value:.3g} s"
    return format_quantity(value, "time") if value > 0 else f"-{format_quantity(-value, 'time')}"


def format_bytes(value: float) -> str:
    """Bytes of a device; those that a tenth of a GiB does not show in MiB."""
    return f"{value / 2**30:.1f} GiB" if value == 0 or value >= 2**30 / 10 else f"{value / 2**20:.3g} MiB"


def short_seconds(value: float) -> str:
    """A time as people compare it: "6.71 s", "812 ms", "54.1 us", "2.35 h"."""
    if value <= 0.0:
        return "0 s"
    if value >= 7200.0:
        return f"{three_digits(value / 3600.0)} h"
    for unit, scale in _SECONDS:
        if value * scale >= 0.9995:
            return f"{three_digits(value * scale)} {unit}"
    return f"{three_digits(value * 1e9)} ns"


_MOST_DIGITS = 9
"""After the point, of a figure that is compared with a limit."""


def column_seconds(value: float, largest: float) -> str:
    """A time in the unit and the decimals that suit the largest of its column."""
    unit, scale = next((pair for pair in _SECONDS if largest * pair[1] >= 0.9995), _SECONDS[-1])
    decimals = 2 if largest * scale < 99.95 else 1
    return f"{value * scale:,.{decimals}f} {unit}"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent, thousands separated: "6.71", "52.7", "1,235"."""
    if value == 0.0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.3g}" if abs(value) < 0.995 else f"{value:.2f}"


def format_prefixed(value: float) -> str:
    """A rate or count with a decimal prefix: "1.88 M", "164 k", "950"."""
    for scale, prefix in _PREFIXES:
        if value >= 0.9995 * scale:
            return f"{three_digits(value / scale)} {prefix}"
    return three_digits(value)


_SCALES: Final = {"T": 1e12, "B": 1e9, "M": 1e6}


def format_count(value: float) -> str:
    """A number of tokens or parameters in the field's letters: "300 B", "174.6 B", "1.4 T"."""
    letter = next((letter for letter, scale in _SCALES.items() if value >= scale), None)
    return f"{value / _SCALES[letter]:.4g} {letter}" if letter else f"{value:,.0f}"


def format_whole_count(value: int) -> str:
    """The same, with all digits where letters leave some out: "15 T", "8.03 B (8,030,261,248)"."""
    letters = format_count(value)
    number, _, letter = letters.partition(" ")
    exact = not letter or round(float(number) * _SCALES[letter]) == value
    return letters if exact else f"{letters} ({value:,})"


def format_percent(share: float) -> str:
    """A share: "52.7 %"."""
    return f"{100.0 * share:.1f} %"


def format_gib(value: float) -> str:
    """Bytes in GiB to one decimal, without the unit."""
    return f"{value / 2**30:,.1f}"


def format_dollars(value: float) -> str:
    """Money: "$1.61 M", "$950"."""
    return f"${format_prefixed(value)}"


YEAR: Final = 365.25
"""Days."""


def format_days(value: float, limit: float | None = None) -> str:
    """A duration in years from two on, days, hours, minutes or seconds; not rounded beyond a limit in days."""
    unit, size = next((pair for pair in _DURATIONS if value >= pair[1] * (2 if pair[1] > 1 else 1)), _DURATIONS[-1])
    return f"{_clear_of(value / size, None if limit is None else limit / size)} {unit}"


_DURATIONS: Final = (
    ("years", YEAR),
    ("days", 1.0),
    ("hours", 1.0 / 24.0),
    ("minutes", 1.0 / 1440.0),
    ("seconds", 1.0 / 86400.0),
)
"""In days."""


def format_energy(megawatt_hours: float) -> str:
    """Energy as a bill has it: "252 MWh", "3.10 kWh"."""
    if megawatt_hours >= 0.9995:
        return f"{three_digits(megawatt_hours)} MWh"
    return f"{three_digits(1e3 * megawatt_hours)} kWh"


def _clear_of(value: float, limit: float | None) -> str:
    """Three significant digits, or as many as tell a value from a limit that it exceeds or is below."""
    text, digits = three_digits(value), 0
    while limit is not None and digits < _MOST_DIGITS and (float(text.replace(",", "")) > limit) != (value > limit):
        digits += 1
        text = f"{value:,.{digits}f}"
    return text


def format_duration(seconds: float) -> str:
    """A time between a second and days in words."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def plural(count: int, thing: str) -> str:
    """So many things: "1 layer", "12,288 GPUs"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def name_in(given: object) -> str:
    """What a request calls its model, its cluster or its stack, whether by name or in a table."""
    return str(given.get("name", "custom")) if isinstance(given, Mapping) else str(given or "custom")


def memory_savings(strategy: Strategy) -> list[str]:
    """What a strategy does for memory that only a lack of it explains, in words."""
    together = strategy.recompute_num_layers
    return [
        *([f"{together} layers recomputed together"] if together > 1 else []),
        *([f"offload {strategy.offload}"] if strategy.offload != "none" else []),
    ]


def degrees_above_one(strategy: Strategy, *names: str) -> list[str]:
    """The degrees that split anything: "TP 8", of all unless some are named."""
    axes = names or ("tp", "cp", "pp", "vpp", "dp", "ep")
    return [f"{axis.upper()} {degree}" for axis in axes if (degree := getattr(strategy, axis)) > 1]


def strategy_in_words(strategy: Strategy) -> str:
    """A strategy in a few words: the degrees above 1, and what it does for memory."""
    return ", ".join([*(degrees_above_one(strategy) or ["one GPU"]), *memory_savings(strategy)])


def layers_per_stage(strategy: Strategy) -> str:
    """The split of layers in words: "12 layers per stage", "layers per stage 20, 21, 19"."""
    layers = [stage.layers for stage in strategy.stages]
    return f"{plural(layers[0], 'layer')} per stage" if len(set(layers)) == 1 else stages_of_layers(layers)


def stages_of_layers(layers: Iterable[int]) -> str:
    """The layers of stages in their order: "layers per stage 3, then 30 stages of 4, then 3"."""
    runs = [(each, len(list(same))) for each, same in groupby(layers)]
    words = [f"{count} stages of {each}" if count > 1 else f"{each}" for each, count in runs]
    return "layers per stage " + (", " if len(words) == sum(count for _, count in runs) else ", then ").join(words)


_COMPARED: Final = (
    *("tp", "cp", "pp", "vpp", "dp", "ep", "etp"),
    *("zero_stage", "micro_batch_size", "recompute", "schedule"),
)


def otherwise(given: Strategy, other: Strategy) -> str:
    """In what another strategy is otherwise than a given one: "TP 1 instead of 4"; nothing where it is the same."""
    pairs = ((name, getattr(given, name), getattr(other, name)) for name in _COMPARED)
    return ", ".join(f"{_axis_name(name)} {theirs} instead of {mine}" for name, mine, theirs in pairs if mine != theirs)


def _axis_name(name: str) -> str:
    """An axis as a sentence has it."""
    plain = {"zero_stage": "ZeRO", "micro_batch_size": "micro-batch"}
    return plain.get(name) or (name.upper() if len(name) <= 3 else name)


def why_infeasible(answer: Plan) -> str:
    """Why an answer has nothing that works, memory first, else the rule, or two that stand together; and what would."""
    refused = sorted(answer.rejected, key=lambda one: one.rule != "memory")
    together = refused[:2] if len(refused) == 2 and refused[0].rule != "memory" else refused[:1]
    reason = "; ".join(one.example for one in together) or "nothing fits"
    near = f"; nearest: {what_works(answer.nearest)}" if answer.nearest else ""
    return reason + (f"; nothing near works: {answer.nothing_near}" if answer.nothing_near else near)


def what_works(nearest: Advice) -> str:
    """What works in place of what was asked for: "16 GPUs (the same request with --global-batch 512)"."""
    return f"{nearest.subject} ({nearest.text})"


def main_restriction(scope: Iterable[str], strategy: Strategy | None) -> str:
    """The restrictions that are named wherever a proof is; the document has the others.

    Of a plan that shards gradients or weights the degrees of sharding that were searched are one.
    """
    sharded = strategy is not None and strategy.zero_stage >= SHARDED_GRADIENTS
    of_sharding = next((said for said in scope if sharded and said.startswith(SHARDED_OVER)), "")
    main = next((said for said in scope if said == NO_OFFLOADING or said.startswith("among ")), "")
    return " ".join(filter(None, (main, of_sharding)))


def nearly_full_warning(stage: int, share: float) -> str:
    """The warning of a plan whose fullest stage leaves next to nothing of the usable memory."""
    filled = f"stage {stage} fills {share:.1%} of the usable memory and may run out"
    return f"{filled} (predictions of memory are off by a few per cent); --memory-margin 5% leaves more"
