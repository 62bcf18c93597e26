"""Branches whose condition is not known: arms are tried; what each way through a script leads to, what settles it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from planner.jobs.reader import Launch
from planner.jobs.shell.state import LEAVING, RANKS, Branch, Doubt, Exit, Shell, State, Status, Undecided, is_known
from planner.jobs.values import data

Arm = Callable[[], Status]


@dataclass(frozen=True)
class Way:
    """An arm of a branch, and what holds in it."""

    run: Arm
    said: str
    values: tuple[tuple[str, str], ...] = ()


@dataclass
class _Tried:
    """What an arm does."""

    state: State
    status: Status
    leaves: Exception | None

    def same(self, other: _Tried) -> bool:
        alike = type(self.leaves) is type(other.leaves) and vars(self.leaves or object) == vars(other.leaves or object)
        return alike and not isinstance(self.leaves, Undecided) and self.state.same(other.state)


def either_way(shell: Shell, doubt: Doubt, yes: Arm, no: Arm, *, override: bool = False) -> Status:
    """A condition in doubt and what follows if it holds, and if not.

    ``override`` says that what follows changes what stands before it, which a shell has where nobody says otherwise.
    """
    usual = None if doubt.unset is None else 0 if doubt.unset else 1
    branch = Branch(
        doubt.text, doubt.line, doubt.names, (_said(doubt), _said(doubt.flipped())), doubt.options,
        usual if doubt.absent or override or doubt.status or (doubt.names and doubt.names <= RANKS) else None, usual,
        int(not doubt.negated) if len(doubt.options) == 1 else None,
    )  # fmt: skip
    first = Way(yes, branch.arms[0], () if doubt.negated else doubt.values)
    second = Way(no, branch.arms[1], doubt.values if doubt.negated else ())
    found = taken(shell, branch, (first, second), flip=doubt.negated)
    if not isinstance(found, tuple):
        return found
    same: dict[tuple[Status, Status], Doubt] = {(True, False): doubt, (False, True): doubt.flipped()}
    return same.get(found, replace(doubt, unset=None, values=()))


def _said(doubt: Doubt) -> str:
    """An arm in words."""
    if len(doubt.options) == 1:
        name, value = doubt.options[0]
        return f"${name} {'other than ' if doubt.negated else ''}{value or 'empty'}"
    return f"not {doubt.text}" if doubt.negated else doubt.text


def taken(shell: Shell, branch: Branch, ways: Sequence[Way], *, flip: bool = False) -> Status | tuple[Status, Status]:
    """Run the arm of a branch that is meant; both statuses of two arms that do the same and end otherwise."""
    key = (branch.text, branch.line)
    shell.doubts += 1
    shell.met.append(branch)
    if key in shell.state.decided and len(ways) == 2:
        place = shell.state.decided[key] ^ flip
        return ways[place].run()
    launched = len(shell.state.launches)
    tried = [_attempt(shell, way.run) for way in ways]
    alive = [
        place for place, one in enumerate(tried)
        if not (isinstance(one.leaves, Exit) and len(one.state.launches) == launched)
    ] or [0]  # fmt: skip
    first = tried[alive[0]]
    if len(alive) == 1 or all(first.same(tried[place]) for place in alive[1:]):
        if not isinstance(first.leaves, Undecided):
            return _adopt(shell, ways, tried, alive)
    elif shell.trying:
        raise Undecided
    place = alive[0] if len(alive) == 1 else shell.decide(branch, tuple(alive))
    _suppose(shell, ways[place].values)
    if len(ways) == 2:
        shell.state.decided[key] = place ^ flip
    return ways[place].run()


def _attempt(shell: Shell, arm: Arm) -> _Tried:
    before, output, effort = shell.state, shell.output, shell.input
    shell.state = before.copied()
    shell.output = [] if output is not None else None
    shell.input = list(effort) if effort is not None else None
    depth = len(shell.locals)
    shell.trying += 1
    status: Status = False
    leaves: Exception | None = None
    try:
        status = arm()
    except LEAVING as left:
        leaves = left
    finally:
        shell.trying -= 1
        made, shell.state, printed, shell.output, shell.input = shell.state, before, shell.output, output, effort
        del shell.locals[depth:]
    made.variables[" output"] = "".join(printed or ())
    return _Tried(made, status, leaves)


def _adopt(
    shell: Shell, ways: Sequence[Way], tried: Sequence[_Tried], alive: Sequence[int]
) -> Status | tuple[Status, Status]:
    """Go on with what arms that do the same have made, or with the only arm after which the script goes on."""
    only = tried[alive[0]]
    shell.write(str(only.state.variables.pop(" output", "")))
    shell.state = only.state
    if len(alive) == 1:
        _suppose(shell, ways[alive[0]].values)
    if only.leaves:
        raise only.leaves
    statuses = [tried[place].status for place in alive]
    if len(statuses) == 1 or all(one == statuses[0] for one in statuses):
        return statuses[0]
    return (statuses[0], statuses[1]) if len(ways) == 2 else True


def _suppose(shell: Shell, values: Sequence[tuple[str, str]]) -> None:
    """Take names to have the values that an arm says they have."""
    for name, value in values:
        shell.state.given[name] = value
        itself = {f"${{{name}}}", f"${name}"}
        known = shell.unknowns.known.items()
        for mark in [mark for mark, one in known if one.names == {name} and one.text in itself]:
            for held, text in shell.state.variables.items():
                if isinstance(text, dict):
                    text.update({key: one.replace(mark, value) for key, one in text.items()})
                elif not is_known(text):
                    shell.state.variables[held] = text.replace(mark, value)
            shell.state.arguments = [one.replace(mark, value) for one in shell.state.arguments]


_LISTED: Final = 8
"""Launches that are listed where a branch decides which it is."""


@dataclass(frozen=True)
class Need:
    """What a script does not say.

    Attributes:
        name: of the variable, the number of the argument, or "" of a command whose output is not known.
        line: where it is first used.
        values: those that the script compares it with.
        reason: what depends on it.
    """

    name: str
    line: int
    values: tuple[str, ...] = ()
    reason: str = ""

    @property
    def option(self) -> str:
        """How the user says it."""
        if self.name == "#" or self.name.isdecimal():
            return "--arg " + (" or ".join(self.values) or "VALUE")
        return f"--env {self.name}=" + (" or ".join(self.values) or "VALUE") if self.name else ""


def asked(needs: Sequence[Need]) -> str:
    """What must be given, in one line."""
    said = [f"{one.option} ({one.reason})" if one.option else one.reason for one in needs]
    return "not known from the script: " + ", ".join(said) if said else ""


@dataclass
class Route:
    """One way through a script: the arms that it takes, beginning with those that were chosen for it."""

    chosen: tuple[int, ...] = ()
    taken: list[tuple[Branch, tuple[int, ...], int]] = field(default_factory=list)
    launches: tuple[Launch, ...] = ()
    outcome: str = ""
    met: tuple[Branch, ...] = ()

    def end(self, launches: tuple[Launch, ...], met: Sequence[Branch]) -> None:
        """Note what it leads to, and all branches that it met."""
        self.launches, self.met = launches, tuple(met)
        self.outcome = repr([_in_common(one) for one in launches])

    def decide(self, branch: Branch, open_arms: tuple[int, ...]) -> int:
        """The arm that this way takes: the next chosen one, else a fresh shell's, else that of no value named."""
        place = len(self.taken)
        likely = next((one for one in (branch.fresh, branch.other) if one in open_arms), open_arms[0])
        arm = self.chosen[place] if place < len(self.chosen) else likely
        assert arm is not None
        self.taken.append((branch, open_arms, arm))
        return arm

    @property
    def arms(self) -> tuple[int, ...]:
        """The arm of every branch that it comes to."""
        return tuple(arm for _, _, arm in self.taken)

    def later(self, place: int) -> dict[tuple[str, int], int]:
        """The arms that it takes after a place."""
        return {(branch.text, branch.line): arm for branch, _, arm in self.taken[place + 1 :]}


_INERT: Final = re.compile(
    rf"({'|'.join(data('shell/words')['inert'].split())})_?.*"
    r"|\w*(PATH|DIR|KEY|TOKEN|PROXY|LOG\w*)|(?i:ip_head|(\w+_)?(ip|addr|address|port|host|hostname))"
)
"""Variables that change neither time nor memory as the planner sees them: network, hosts, caches, accounts, paths."""


def _in_common(launch: Launch) -> tuple[object, ...]:
    """What two launches must have in common to be one."""
    environment = {name: value for name, value in launch.environment.items() if not _INERT.fullmatch(name)}
    return launch.line, launch.words, launch.outer, sorted(environment.items()), sorted(launch.written.items())


def that_matter(routes: Sequence[Route]) -> list[Branch]:
    """Branches that make a difference: two ways that part there, and agree on all else, start different trainings."""
    found: dict[tuple[str, int], Branch] = {}
    for one, other in combinations(routes, 2):
        place = next(
            (at for at, arms in enumerate(zip(one.arms, other.arms, strict=False)) if len(set(arms)) > 1), None
        )
        if place is None or one.outcome == other.outcome:
            continue
        mine, theirs = one.later(place), other.later(place)
        if all(mine[key] == theirs[key] for key in mine.keys() & theirs.keys()):
            branch = one.taken[place][0]
            found.setdefault((branch.text, branch.line), branch)
    return sorted(found.values(), key=lambda one: one.line)


def usual_routes(routes: Sequence[Route], matter: Sequence[Branch]) -> list[Route]:
    """The ways that take a fresh shell's arm wherever that may be assumed."""
    usual = {(one.text, one.line): one.usual for one in matter if one.usual is not None}
    found = [
        route for route in routes
        if all(usual.get((branch.text, branch.line), arm) == arm for branch, _, arm in route.taken)
    ]  # fmt: skip
    return found or list(routes[:1])


def launches_of(routes: Sequence[Route], matter: Sequence[Branch]) -> tuple[Launch, ...]:
    """The first launches of some ways, those of which most is known first, each with the arms that lead to it."""
    found: dict[str, Launch] = {}
    keys = {(one.text, one.line) for one in matter}
    for route in routes:
        taken = [(branch, arm) for branch, _, arm in route.taken if (branch.text, branch.line) in keys]
        arms = tuple(f"{branch.arms[arm]} (line {branch.line})" for branch, arm in taken)
        for launch in route.launches:
            found.setdefault(repr(_in_common(launch)), replace(launch, when=arms))
    everywhere = {key for key in found if all(key in route.outcome for route in routes)}
    listed = sorted(found.items(), key=lambda one: sum(t in word for t in one[1].unknown for word in one[1].words))
    return tuple(replace(one, when=()) if key in everywhere else one for key, one in listed[:_LISTED])


def assumption(branch: Branch) -> str:
    """What was taken for granted at a branch, and what else there is."""
    assert branch.usual is not None
    others = [arm for place, arm in enumerate(branch.arms) if place != branch.usual]
    return f"line {branch.line}: {branch.arms[branch.usual]} is assumed; the script also allows {' or '.join(others)}"


def needs_of(branches: Sequence[Branch], routes: Sequence[Route]) -> tuple[Need, ...]:
    """What would settle branches, by name, with all values that the script compares it with."""
    asked_for = [pair for route in routes for branch in route.met for pair in branch.values]
    found: dict[str, Need] = {}
    for branch in branches:
        text = f"line {branch.line}: {branch.text}"
        for name in sorted(branch.names) or [""]:
            values = dict.fromkeys(value for one, value in asked_for if one == name and value)
            found.setdefault(name or text, Need(name, branch.line, tuple(values), text))
    return tuple(found.values())
