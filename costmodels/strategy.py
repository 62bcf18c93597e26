"""Strategies as a struct of arrays: one of them is a full set of degrees and switches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import reduce, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodels.arrays import Bools, Columns, Floats, Ints, taken
from costmodels.names import VALUE_NAMES

__all__ = [
    "AXES",
    "BLOCK_AXES",
    "DENSE_AXES",
    "LARGEST_TABLE",
    "LAYER_AXES",
    "STAGE_AXES",
    "STATE_AXES",
    "Bools",
    "Floats",
    "Ints",
    "Strategies",
    "concatenate",
    "is_constant",
    "narrow",
    "of_axes",
    "once_for",
    "strategies",
]

Derived = TypeVar("Derived")
Further = ParamSpec("Further")

FEW_ROWS = 2048
"""Strategies up to which no formula is better off with those of them that differ."""

LARGEST_TABLE = 1 << 16

_FIRST: Ints = np.zeros(1, dtype=np.int64)
_FIRST.flags.writeable = False


class _Share(NamedTuple):
    """What the distinct combinations of strategies know of these."""

    whole: ref[Strategies]
    axes: frozenset[str]
    """Axes that the combinations have; of others they have one value of no meaning."""
    first: Ints
    """Which of the strategies each combination is taken of."""


class _Combinations(NamedTuple):
    """The distinct combinations of some axes, which strategies they are taken of, and which one every strategy has."""

    few: Strategies
    first: Ints
    inverse: Ints


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Strategies(Columns):
    """N strategies, one array of shape (N,) per axis.

    ``tp * cp * pp * dp`` is the number of GPUs; ``micro_batch_size`` is in sequences per data-parallel rank
    (a fraction is possible where context parallelism splits a sequence) and ``num_microbatches`` is counted
    per data-parallel rank and iteration. ``sharding_degree`` is the size of the group over which the ZeRO
    stage shards its states; it divides ``dp * cp``. Of layers that are all recomputed, the input of every
    ``recompute_num_layers``-th is stored, and so many run again together.
    """

    tp: Ints
    cp: Ints
    cp_kind: Ints
    pp: Ints
    vpp: Ints
    dp: Ints
    ep: Ints
    etp: Ints
    zero_stage: Ints
    sharding_degree: Ints
    micro_batch_size: Floats
    num_microbatches: Ints
    schedule: Ints
    sequence_parallel: Ints
    recompute: Ints
    rank_order: Ints
    recompute_modules: Ints
    offload: Ints
    vocabulary: Ints
    recompute_num_layers: Ints
    _known: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What has been derived from the columns, by name; never copied to other strategies."""
    _share: _Share | None = field(default=None, init=False, compare=False, repr=False)
    """Of which strategies these are the distinct combinations, if of any."""

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, chosen: NDArray[Any] | slice) -> Strategies:
        """The chosen strategies (an index, mask or slice)."""
        kept = self.tp[chosen]
        columns = {name: _column(getattr(self, name), chosen, len(kept)) for name in AXES if name != "tp"}
        return Strategies(tp=kept, **columns)

    def row(self, index: int) -> dict[str, Any]:
        """One strategy as plain numbers by axis name."""
        return {name: getattr(self, name)[index].item() for name in AXES}

    def distinct(self, *names: str) -> tuple[Strategies, Ints]:
        """The distinct combinations of the named axes, and for each strategy which of them it has.

        What depends on few axes is priced once per combination and gathered back:
        ``sub, inverse = strategies.distinct("tp", "cp"); cost(sub)[inverse]``. Axes not named have one value
        of no meaning. Combinations that differ in the same axes are the same object, also where they are asked for of
        combinations of more axes, so that what is derived of them is derived once.
        """
        if len(self) == 1:  # which must not know itself: only a search for cycles would let it go
            return self, _FIRST
        share = self._share
        if share is None or (whole := share.whole()) is None:
            found = self._found(names)
            return found.few, found.inverse
        few, inverse = whole.distinct(*(name for name in names if name in share.axes))
        return few, self.once(("inverse", names), lambda: inverse.take(share.first))

    def _found(self, names: tuple[str, ...]) -> _Combinations:
        known: dict[tuple[str, ...], _Combinations] = self.once("combinations", dict)
        axes = self.once(("differing", names), lambda: self._differing(names))
        if axes not in known:
            wider = [found for more, found in known.items() if {*axes} <= {*more}]
            known[axes] = self._combinations(axes, min(wider, key=lambda found: len(found.few), default=None))
        return known[axes]

    def _combinations(self, axes: tuple[str, ...], wider: _Combinations | None) -> _Combinations:
        """Those of axes none of which follows from others; of combinations of these axes and more, if there are any."""
        codes = [self._code(name) for name in axes]
        if wider is None:
            first, inverse = combinations(codes, len(self))
        else:
            some, inverse = combinations([(code.take(wider.first), n) for code, n in codes], len(wider.first))
            first, inverse = wider.first.take(some), inverse.take(wider.inverse)
        return _Combinations(self._few(axes, first), first, inverse)

    def _few(self, axes: tuple[str, ...], first: Ints) -> Strategies:
        """The strategies at ``first``, one for each combination of axes; their columns are taken when they are read."""
        columns, told = {name: getattr(self, name) for name in AXES}, frozenset((*axes, *self._followers(axes)))

        def column(name: str) -> NDArray[Any]:
            return columns[name].take(first) if name in told else _one_value(columns[name], len(first))

        return Strategies._made(column, {"_known": {}, "_share": _Share(ref(self), told, first)})

    def _differing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the axes that tell strategies apart, in order: not what all share, or what follows from others."""
        varied = tuple(name for name in AXES if name in names and self._code(name)[1] > 1)
        follow = self._followers(varied)
        return tuple(name for name in varied if name not in follow)

    def _followers(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes that these tell, with those that all share: data ranks of one cluster, micro-batches of one batch."""
        found: tuple[str, ...] = ()
        for last, *others in _PRODUCTS:
            told = all(name in axes or name in found or self._code(name)[1] == 1 for name in others)
            if told and self._is_one(last, *others):
                found += (last,)
        return found

    def _is_one(self, *names: str) -> bool:
        """Whether the product of the axes is the same for all strategies."""

        def compare() -> bool:
            product = reduce(np.multiply, (getattr(self, name) for name in names))
            return bool((product == product[:1]).all())

        return self.once(("one product", names), compare)

    def _code(self, name: str) -> tuple[NDArray[Any], int]:
        codes: tuple[NDArray[Any], int] = self.once(("codes", name), lambda: column_codes(getattr(self, name)))
        return codes

    def schedules(self) -> list[int]:
        """Schedules that some of them run, as their places in ``SCHEDULE_NAMES``."""
        return self.once("schedules", lambda: np.flatnonzero(np.bincount(self.schedule)).tolist())

    def once(self, name: object, derive: Callable[[], Derived]) -> Derived:
        """What ``derive`` makes of these strategies, made once."""
        if name not in self._known:
            self._known[name] = derive()
        known: Derived = self._known[name]
        return known


def once_for(strategies: Strategies, axes: tuple[str, ...], formula: Callable[[Strategies], Derived]) -> Derived:
    """A formula of strategies that reads these axes alone, worked out once for every combination and gathered.

    What it returns are arrays (N,), or tuples or records of such. Few strategies, or such as have little in common,
    are priced as they are.
    """
    few, places = _fewer(strategies, axes)
    found = formula(few)
    return found if places is None else cast("Derived", taken(found, places))


def _fewer(strategies: Strategies, axes: tuple[str, ...]) -> tuple[Strategies, Ints | None]:
    """``distinct`` where it is worth it; else the strategies as they are."""
    if len(strategies) > FEW_ROWS:
        few, places = strategies.distinct(*axes)
        if 2 * len(few) <= len(strategies):
            return few, places
    return strategies, None


Formula = Callable[Concatenate[Strategies, Further], Derived]


def of_axes(
    *axes: str, further: Callable[[Any], tuple[str, ...]] | None = None
) -> Callable[[Formula[Further, Derived]], Formula[Further, Derived]]:
    """Have a formula that reads these axes alone worked out as ``once_for`` does, and kept for the next time.

    What it takes besides strategies is alike for all; first comes the scenario, of which ``further`` says what other
    axes it has the formula read.
    """

    def decorate(formula: Formula[Further, Derived]) -> Formula[Further, Derived]:
        @wraps(formula)
        def gathered(strategies: Strategies, /, *args: Further.args, **kwargs: Further.kwargs) -> Derived:
            few, places = _fewer(strategies, (*axes, *further(args[0])) if further else axes)
            key = formula, *map(id, args), *kwargs, *map(id, kwargs.values())
            found = few.once(key, lambda: (formula(few, *args, **kwargs), args, kwargs))[0]  # which live as long as it
            return found if places is None else cast("Derived", taken(found, places))

        return gathered

    return decorate


AXES: tuple[str, ...] = tuple(f.name for f in fields(Strategies) if not f.name.startswith("_"))
"""The axes of a strategy, in canonical order."""

DENSE_AXES = ("tp", "cp", "cp_kind", "micro_batch_size", "sequence_parallel")
"""All that the cost of a layer without experts, the embedding and the head depends on."""
BLOCK_AXES = (*DENSE_AXES, "ep", "etp")
"""All that the cost of a layer depends on."""
LAYER_AXES = (*BLOCK_AXES, "recompute", "recompute_modules", "recompute_num_layers", "offload")
"""Axes that the cost of a recomputed or offloaded layer depends on, besides ``overlapped_experts.further_axes``."""
STAGE_AXES = ("tp", "ep", "etp", "pp", "vpp", "schedule", "recompute_num_layers", "vocabulary")
"""What the parameters of the stage with the most depend on."""
STATE_AXES = ("zero_stage", "sharding_degree", "dp", "pp", "schedule", "offload")
"""What the bytes of a parameter's states depend on, experts' aside."""

_PRODUCTS = (("dp", "tp", "cp", "pp"), ("num_microbatches", "dp", "micro_batch_size"))
"""Axes whose product most questions fix, the GPUs and the batch, so that the first follows from the others."""

_FROM_ZERO = frozenset({*VALUE_NAMES, "zero_stage", "recompute_modules"})
"""Axes whose neutral value is 0; that of degrees and sizes is 1."""
_TYPES: dict[str, type[np.generic]] = {"micro_batch_size": np.float64}
"""Of axes that are no whole numbers."""


def strategies(**axes: ArrayLike) -> Strategies:
    """Strategies from scalars and arrays of one common length; absent axes take their neutral value.

    Raises:
        ValueError: an unknown axis, or arrays of different lengths.
    """
    if unknown := set(axes) - set(AXES):
        raise ValueError(f"unknown axes {sorted(unknown)}; the axes are {', '.join(AXES)}")
    columns = {
        name: np.asarray(axes.get(name, name not in _FROM_ZERO), _TYPES.get(name, np.int64)).reshape(-1)
        for name in AXES
    }
    lengths = {len(column) for column in columns.values()} - {1}
    if len(lengths) > 1:
        raise ValueError(f"axes of different lengths: {sorted(lengths)}")
    length = lengths.pop() if lengths else 1
    return Strategies(**{name: _spread(column, length) for name, column in columns.items()})


def concatenate(parts: list[Strategies]) -> Strategies:
    """All strategies of the parts, in order; one part is itself."""
    if len(parts) == 1:
        return parts[0]
    return Strategies(**{name: _concatenated([getattr(part, name) for part in parts]) for name in AXES})


def _concatenated(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """All columns, in order; one value that they share is not written out."""
    some = [column for column in columns if len(column)]
    if some and all(is_constant(column) and column[0] == some[0][0] for column in some):
        return _one_value(some[0], sum(map(len, some)))
    return np.concatenate(columns)


def is_constant(column: NDArray[Any]) -> bool:
    """Whether a column is one value that all strategies share, with one place in memory."""
    return column.strides == (0,)


def _spread(column: NDArray[Any], length: int) -> NDArray[Any]:
    """The column for so many strategies; one value is not written out."""
    return _one_value(column, length) if len(column) < length or is_constant(column) else np.ascontiguousarray(column)


def _column(column: NDArray[Any], chosen: NDArray[Any] | slice, length: int) -> NDArray[Any]:
    return _one_value(column, length) if is_constant(column) else column[chosen]


def _one_value(column: NDArray[Any], length: int) -> NDArray[Any]:
    """``np.broadcast_to(column[:1], (length,))``, several times as fast."""
    spread: NDArray[Any] = np.ndarray((length,), column.dtype, column[:1], strides=(0,))
    spread.flags.writeable = False
    return spread


def combinations(codes: Iterable[tuple[NDArray[Any], int]], length: int) -> tuple[Ints, Ints]:
    """The first or another place of every combination of columns that are known by their codes, and which one each has.

    The columns are of one ``length``.
    """
    told = [(column, count) for column, count in codes if count > 1]
    size, most = 1, max(4 * length, LARGEST_TABLE)
    largest = max(most, length * max((count for _, count in told), default=1))
    wide = np.int32 if largest < 2**31 else np.int64  # half as wide is twice as fast
    key: NDArray[Any] = np.zeros(length, dtype=wide)
    for column, count in told:
        if size * count > most:  # fewer are there than there may be
            size, numbered = _numbered(key, size)
            key = numbered.astype(wide)
        key *= count
        key += column
        size *= count
    size, inverse = _numbered(key, size)
    first = np.empty(size, dtype=np.int64)
    first[inverse] = np.arange(length)  # the places that ``np.unique`` returns cost it a slower sort
    return first, inverse


def _numbered(key: NDArray[Any], size: int) -> tuple[int, Ints]:
    """How many of the whole numbers below ``size`` there are, and the place of each among them."""
    if size > max(4 * len(key), LARGEST_TABLE):
        present, inverse = np.unique(key, return_inverse=True)
        return len(present), inverse
    there, key = np.zeros(size, dtype=np.bool_), key.astype(np.int64, copy=False)
    there[key] = True
    present = np.flatnonzero(there)
    place = np.empty(size, dtype=np.int64)
    place[present] = np.arange(len(present))
    return len(present), place.take(key)


def narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers from 0 on in the fewest bytes that hold them all: to be kept or compared, not to be added to."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def column_codes(column: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Whole numbers below a count that tell the values of a column apart, of the fewest bytes, and that count."""
    if is_constant(column):
        return np.zeros(1, dtype=np.int64), 1
    whole = column.astype(np.int64, copy=False)
    largest = int(whole.max(initial=LARGEST_TABLE if not len(column) else 0))
    if largest >= LARGEST_TABLE or (column.dtype.kind == "f" and (whole != column).any()):
        values, codes = np.unique(column, return_inverse=True)
        return narrow(codes.reshape(-1)), max(len(values), 1)
    there = np.zeros(largest + 1, dtype=np.bool_)
    there[whole] = True
    code = np.cumsum(there) - 1
    return narrow(code).take(whole), int(code[-1]) + 1
