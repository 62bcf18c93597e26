"""Ways through a script: what each arm of a branch that is not known leads to, and what would settle it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from planner.jobs.data import data
from planner.jobs.reader import Launch
from planner.jobs.shell.state import Branch

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
        self.outcome = repr([_said(one) for one in launches])

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


def _said(launch: Launch) -> tuple[object, ...]:
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
            found.setdefault(repr(_said(launch)), replace(launch, when=arms))
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
