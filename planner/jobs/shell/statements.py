"""Statements of a script: lists, branches, loops, functions, pipelines and redirections, run by reading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from planner.errors import BadRequest
from planner.jobs.shell.branches import Way, either_way, taken
from planner.jobs.shell.commands import command, declaration, redirected, set_variables
from planner.jobs.shell.conditions import both, bracketed, doubt, either, negation
from planner.jobs.shell.parsing import Node, part
from planner.jobs.shell.patterns import matches
from planner.jobs.shell.state import DEPTH, Branch, Doubt, Exit, Leave, Shell, Status, Undecided, is_known
from planner.jobs.shell.variables import assign, calculated, number_of, unset
from planner.jobs.shell.words import arithmetic_text, fields, joined, parts_of, pattern_of, source, touching

_TURNS: Final = 2_000
"""Turns of one loop."""
_WAITING: Final = 40
"""Turns of a loop of which each asks what is not known."""


def run(shell: Shell, node: Node) -> Status:
    """Run a statement by reading it."""
    shell.spend()
    reader = _STATEMENTS.get(node.type)
    if reader is None:
        if node.type != "comment" and node.is_named and not node.is_error:
            shell.unread.append(f"line {shell.line}: {source(node)[:60]!r} is not read")
        return shell.state.status
    if not shell.depth:
        shell.line = node.start_point[0] + 1
    if shell.depth > DEPTH:
        raise BadRequest(f"line {shell.line}: commands are nested more than {DEPTH} deep; does a function call itself?")
    shell.state.status = reader(shell, node)
    return shell.state.status


def run_all(shell: Shell, nodes: Sequence[Node]) -> Status:
    """Run statements one after another."""
    status: Status = True
    for place, node in enumerate(nodes):
        if node.is_named and node.type not in {"comment", "heredoc_body"}:
            status = run(shell, node)
        elif node.type == "&" and place:
            status = shell.state.status = True
    return status


def _compound(shell: Shell, node: Node) -> Status:
    if node.children[0].type == "((":
        text = arithmetic_text(shell, node, node.children[0].end_byte, node.children[-1].start_byte)
        number = number_of(shell, text)
        return doubt(shell, f"(({text}))", calculated(shell, text)) if number is None else number != 0
    return run_all(shell, node.children)


def subshell(shell: Shell, action: Callable[[], Status]) -> Status:
    """Run something in a shell of its own: of what it changes, only files and launches stay."""
    before = shell.state
    shell.state = before.copied()
    status: Status = True
    try:
        status = action()
    except Exit:
        status = shell.state.status
    finally:
        before.launches, before.files = shell.state.launches, shell.state.files
        shell.state = before
    return status


def _list(shell: Shell, node: Node) -> Status:
    left, sign, right = node.children[0], node.children[1].type, node.children[-1]
    first = run(shell, left)
    shell.state.status = first
    if isinstance(first, bool):
        return run(shell, right) if first == (sign == "&&") else first
    if right.type in {"test_command", "negated_command"}:  # which changes nothing
        return both(first, run(shell, right)) if sign == "&&" else either(first, run(shell, right))
    certain = replace(first, unset=True) if first.status and not first.negated else first
    second = lambda: run(shell, right)  # noqa: E731
    if sign == "&&":
        return either_way(shell, certain, second, lambda: False, override=True)
    return either_way(shell, certain, lambda: True, second, override=True)


_Clause = tuple[list["Node"], list["Node"]]


def _arms_of(node: Node) -> Iterator[_Clause]:
    """Conditions and statements of every arm; the last one's conditions are empty where it is an else."""
    then = next((place for place, one in enumerate(node.children) if one.type == "then"), 0)
    others = [one for one in node.children if one.type in {"elif_clause", "else_clause"}]
    yield node.children[1:then], [one for one in node.children[then + 1 :] if one not in others]
    for one in others:
        if one.type == "elif_clause":
            yield from _arms_of(one)
        else:
            yield [], one.children[1:]


def _clauses(shell: Shell, clauses: list[_Clause], *, first: bool = True) -> Status:
    if not clauses:
        return True
    (conditions, body), rest = clauses[0], clauses[1:]
    if not conditions:
        return run_all(shell, body)
    status = run_all(shell, conditions)
    if isinstance(status, bool):
        return run_all(shell, body) if status else _clauses(shell, rest, first=False)
    asked = replace(status, status=False)
    return either_way(
        shell, asked, lambda: run_all(shell, body), lambda: _clauses(shell, rest, first=False),
        override=first and not rest,
    )  # fmt: skip


def _case(shell: Shell, node: Node) -> Status:
    value = joined(shell, part(node, "value"))
    items = [one for one in node.children if one.type == "case_item"]
    if not is_known(value):
        return _case_in_doubt(shell, value, items)
    for place, item in enumerate(items):
        if any(is_known(one) and matches(value, one) for one in _patterns(shell, item)):
            return _item(shell, items, place)
    return True


def _patterns(shell: Shell, item: Node) -> list[str]:
    """The patterns of an item; the grammar cuts those with quotes in them."""
    values = touching(item.children_by_field_name("value"))
    return [pattern_of([part for one in nodes for part in parts_of(shell, one)]) for nodes in values]


def _item(shell: Shell, items: Sequence[Node], place: int) -> Status:
    """Run the commands of an item, and of the next ones where it falls through."""
    item = items[place]
    closing = next(at for at, one in enumerate(item.children) if one.type == ")")
    status = run_all(shell, [one for one in item.children[closing + 1 :] if one.type not in {";;", ";&", ";;&"}])
    falls = item.children[-1].type == ";&" and place + 1 < len(items)
    return _item(shell, items, place + 1) if falls else status


def _case_in_doubt(shell: Shell, value: str, items: Sequence[Node]) -> Status:
    asked = doubt(shell, value, value)
    name = next(iter(asked.names)) if len(asked.names) == 1 and len(value) == 1 else ""
    written = [_patterns(shell, item) for item in items]
    literals = [[one.replace("\\", "") for one in each if not re.search(r"(?<!\\)[*?\[]", one)] for each in written]
    ways = [
        Way(
            lambda place=place: _item(shell, items, place),  # type: ignore[misc]
            f"{asked.text} {' or '.join(each) if (each := written[place]) != ['*'] else 'something else'}",
            ((name, literals[place][0]),) if name and len(written[place]) == 1 == len(literals[place]) else (),
        )
        for place in range(len(items))
    ]
    if not any(each == ["*"] for each in written):
        ways.append(Way(lambda: True, f"{asked.text} something else"))
    fresh = next((place for place, each in enumerate(written) if any(matches("", one) for one in each)), len(ways) - 1)
    unset_too = bool(asked.names) and shell.unknowns.unset(value)
    options = tuple((name, one) for each in literals for one in each) if name else ()
    branch = Branch(
        f"case {asked.text}", shell.line, asked.names, tuple(way.said for way in ways), options,
        None, fresh if unset_too else None,
    )  # fmt: skip
    found = taken(shell, branch, ways)
    return True if isinstance(found, tuple) else found


def _for(shell: Shell, node: Node) -> Status:
    name = source(node.named_children[0])
    words = list(shell.state.arguments)
    if any(one.type == "in" for one in node.children):
        words = [word for one in touching(node.children_by_field_name("value")) for word in fields(shell, *one)]

    def turns() -> Iterator[None]:
        for word in words:
            assign(shell, name, word)
            yield

    return _loop(shell, part(node, "body"), turns())


def _counted(shell: Shell, node: Node) -> Status:
    """A loop as C has it."""
    kinds = [one.type for one in node.children]
    inside = node.children[kinds.index("((") : kinds.index("))") + 1]
    signs = [one for one in inside if one.type in {"((", ";", "))"}]
    spans = [(one.end_byte, after.start_byte) for one, after in pairwise(signs)]

    def calculate(place: int, usual: str = "") -> int | None:
        return number_of(shell, arithmetic_text(shell, node, *spans[place]) or usual)

    calculate(0)

    def turns() -> Iterator[None]:
        while (holds := calculate(1, "1")) != 0:
            yield
            if holds is None:
                return
            calculate(2)

    return _loop(shell, part(node, "body"), turns())


def _while(shell: Shell, node: Node) -> Status:
    wanted, body = node.children[0].type == "while", part(node, "body")
    start = next(place for place, one in enumerate(node.children) if one.type == "do_group")
    conditions = node.children[1:start]

    def turns() -> Iterator[None]:
        while True:
            status = run_all(shell, conditions)
            holds = negation(status) if not wanted else status
            if isinstance(holds, Doubt):
                if _turns_once(shell, holds, body):
                    yield
                return
            if not holds:
                return
            yield

    return _loop(shell, body, turns())


def _turns_once(shell: Shell, asked: Doubt, body: Node) -> bool:
    """Whether a loop whose condition is in doubt is read once: where it starts a training, or a file may have lines."""
    if asked.unset is False:
        return False
    before, output = shell.state, shell.output
    launched = len(before.launches)
    shell.state, shell.output = before.copied(), None if output is None else []
    shell.trying += 1
    try:
        run(shell, body)
        changed = len(shell.state.launches) > launched or asked.text.startswith("read ")
    except (Exit, Leave, Undecided):
        changed = True
    finally:
        shell.trying -= 1
        shell.state, shell.output = before, output
    return changed


def _loop(shell: Shell, body: Node, turns: Iterator[None]) -> Status:
    status: Status = True
    doubts = shell.doubts
    for turn, _ in enumerate(turns):
        if turn >= _TURNS:
            raise BadRequest(f"line {shell.line}: a loop of more than {_TURNS:,} turns; does it end?")
        if turn >= _WAITING and shell.doubts >= doubts + turn:
            break  # it waits for something: what comes after is what matters
        try:
            status = run(shell, body)
        except Leave as left:
            if left.loops > 1:
                raise Leave(left.loops - 1, again=left.again) from None
            if not left.again:
                break
    return status


def _function(shell: Shell, node: Node) -> Status:
    shell.state.functions[source(part(node, "name"))] = part(node, "body")
    return True


def piped(shell: Shell, stages: Sequence[Node]) -> Status:
    """Commands of which each reads what the one before prints."""
    outer = shell.output
    status: Status = True
    with shell.having(output=outer, input=shell.input):
        for place, stage in enumerate(stages):
            last = place == len(stages) - 1
            shell.output = outer if last else []
            status = subshell(shell, lambda stage=stage: run(shell, stage))  # type: ignore[misc]
            if not last:
                shell.input = "".join(shell.output or ()).splitlines(keepends=True)
    return status


def _assignments(shell: Shell, node: Node) -> Status:
    set_variables(shell, [node] if node.type == "variable_assignment" else node.named_children)
    return True


def _unset(shell: Shell, node: Node) -> Status:
    for one in node.named_children:
        if not source(one).startswith("-"):
            unset(shell, source(one))
    return True


_STATEMENTS: Final[dict[str, Callable[[Shell, Node], Status]]] = {
    "program": lambda shell, node: run_all(shell, node.children),
    "do_group": lambda shell, node: run_all(shell, node.children), "compound_statement": _compound,
    "subshell": lambda shell, node: subshell(shell, lambda: run_all(shell, node.children)),
    "negated_command": lambda shell, node: negation(run(shell, node.named_children[-1])),
    "if_statement": lambda shell, node: _clauses(shell, list(_arms_of(node))),
    "pipeline": lambda shell, node: piped(shell, [one for one in node.named_children if one.type != "comment"]),
    "list": _list, "case_statement": _case, "for_statement": _for, "c_style_for_statement": _counted,
    "while_statement": _while, "function_definition": _function, "test_command": bracketed,
    "variable_assignment": _assignments, "variable_assignments": _assignments, "unset_command": _unset,
    "command": command, "declaration_command": declaration, "redirected_statement": redirected,
}  # fmt: skip
