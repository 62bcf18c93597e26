"""Branches whose condition is not known: arms are tried; where they differ, somebody must say which is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.jobs.shell.state import LEAVING, RANKS, Branch, Doubt, Exit, Shell, State, Status, Undecided, is_known

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
