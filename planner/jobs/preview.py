"""What to paste into a launcher: the arguments of the framework that a stack stands for, or why there are none."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from planner.answer.plan import Plan, Strategy
from planner.answer.text import BY_GROUP, name_in
from planner.errors import BadRequest
from planner.frameworks.registry import framework_of
from planner.jobs.job import broken, device_lack, groups_in_turn, job_of, uncarried_choices
from planner.jobs.megatron.options import CARRIED, OPTIONS
from planner.jobs.megatron.write import strategy_lacks, strategy_values
from planner.jobs.megatron.write_stack import stack_values, state_values
from planner.jobs.torchtitan.write import torchtitan_arguments
from planner.jobs.values import data

_FORKS: Final[Mapping[str, str]] = data("preview")["forks"]
"""Stacks whose parser is Megatron-LM's or descends from it, and in what it is another one."""

_OTHERS: Final[Mapping[str, str]] = data("preview")["others"]
"""Stacks that are launched otherwise, and how."""


_OWN: Final[Mapping[str, Mapping[str, Any]]] = {name: data("preview")[name] for name in ("has", "lacks", "calls")}
"""By stack, options that its parser has, lacks, or calls otherwise, where they are not all of Megatron-LM's."""


@dataclass(frozen=True)
class Launch:
    """Arguments, and remarks on whose they are and what they cannot say."""

    words: tuple[str, ...]
    remarks: tuple[str, ...]


def launch(plan: Plan, strategy: Strategy) -> Launch:
    """How to start what was planned."""
    if strategy.by_group:
        raise BadRequest(f"{BY_GROUP}; --format json has them by stage")
    stack, precision = _family(plan), str(plan.request.get("precision") or "bf16")
    _check(plan)
    if stack == "torchtitan":
        words, remarks = torchtitan_arguments(strategy, precision=precision)
        lacks = broken(job_of(plan), "torchtitan") if _is_whole(plan) else ()
        refused = [f"torchtitan cannot start this plan: {lack}" for lack in lacks]
        left = uncarried_choices(plan.request, "torchtitan", (), "arguments")
        return Launch(tuple(words), (*remarks, *refused, *left))
    values, remarks = strategy_values(strategy, plan.request)
    states, about_states = state_values(strategy, plan.request)
    own = _runs_on_core(plan)
    assumed, about_stack = stack_values(strategy, plan.request) if own else ({}, ())
    lacking = own and strategy_lacks(strategy, {})
    way = ("--for megatron-lm searches only what these arguments can say",) if lacking else ()
    changed = [path for path in plan.request.get("changes", ()) if path.startswith("stack.")]
    lost = ", ".join(path for path in changed if not (own and path in CARRIED))
    unsaid = (f"these settings of the stack are not in them: {lost}",) if lost else ()
    about = (*unsaid, *remarks, *about_states, *about_stack, *way, *groups_in_turn(strategy.stages))
    said, absent = _of_its_own(stack, OPTIONS.words(values | states | assumed))
    return Launch(said, (*_owner(plan), *absent, *about))


def _of_its_own(stack: str, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Megatron-LM's arguments in the words of a stack's own parser, and a remark on those that it does not have."""
    has, lacks, calls = (
        _OWN[table].get(stack, other) for table, other in (("has", None), ("lacks", ""), ("calls", {}))
    )
    said: list[str] = []
    absent: list[str] = []
    for option, *values in _options(words):
        name = option.removeprefix("--")
        if (called := calls.get(" ".join([name, *values]))) is not None:
            said += [f"--{called}"] if called else []
        elif name in calls or (name in has.split() if has else name not in lacks.split()):
            said += [f"--{calls.get(name, name)}", *values]
        elif not name.startswith("overlap-"):  # it does what was priced without being told
            absent.append(option)
    return tuple(said), (f"its parser has no {', '.join(absent)}, which say what the plan has",) if absent else ()


def _check(plan: Plan) -> None:
    """Refuse arguments that Megatron-LM would stop at; what a fork of it takes is for its remark to say."""
    if why := device_refusal(plan):
        other = f"; {_OTHERS['maxtext']}" if _family(plan) == "maxtext" else ""
        raise BadRequest(f"no options, because megatron-lm cannot start this plan: {why}{other}")
    if not _runs_on_core(plan) or plan.status == "infeasible":
        return
    if plan.request.get("adapters"):
        raise BadRequest("no options: megatron-lm trains no adapters; plan export --to megatron-bridge writes them")
    for lack in broken(job_of(plan), "megatron-lm"):
        other = "--for megatron-lm finds the fastest plan that it can start"
        raise BadRequest(f"no options, because megatron-lm cannot start this plan: {lack}; {other}")


def own_refusal(plan: Plan) -> str | None:
    """Why the framework that the stack stands for cannot start the plan; None where it can, or nobody knows."""
    framework = framework_of(_family(plan), adapters=plan.request.get("adapters"))
    if framework is None or plan.strategy is None or plan.strategy.by_group or not _is_whole(plan):
        return None
    lack = next(broken(job_of(plan), framework), None)
    return f"{framework} cannot start this plan: {lack}" if lack else None


def device_refusal(plan: Plan) -> str | None:
    """Why Megatron-LM's arguments are for other devices than the plan's; None where they are for these."""
    return device_lack(job_of(plan), "megatron-lm") if _is_whole(plan) else None


def _is_whole(plan: Plan) -> bool:
    """Whether a plan holds its model and its cluster."""
    whole = all(isinstance(plan.request.get(name), Mapping) for name in ("model", "cluster"))
    return whole and plan.status != "infeasible"


def _runs_on_core(plan: Plan) -> bool:
    """The stack's parser is today's Megatron-LM's."""
    return _family(plan) in {"megatron-core", "nemo", "nemo-26.06"}


def other_launcher(plan: Plan) -> str | None:
    """How the stack is launched, where its own arguments cannot be written here."""
    stack = _family(plan)
    if stack in _FORKS or stack == "torchtitan":
        return None
    return _OTHERS.get(stack, f"how to launch stack {stack} is not known")


def _owner(plan: Plan) -> tuple[str, ...]:
    stack = _family(plan)
    if other := other_launcher(plan):
        return (f"these are arguments of Megatron-LM, not of stack {stack}: {other}",)
    return (f"these are arguments of Megatron-LM; {_FORKS[stack]}",) if _FORKS[stack] else ()


def _family(plan: Plan) -> str:
    """The stack of a plan, whatever its release."""
    return name_in(plan.request.get("stack")).partition("@")[0]


def block(words: Sequence[str], width: int) -> list[str]:
    """Arguments over several lines, quoted, ready to paste into a shell; no line is wider than ``width``."""
    lines: list[str] = []
    room = max(width - 4, 16)
    for item in _items(words):
        if lines and len(lines[-1]) + 1 + len(item) <= room + 2:
            lines[-1] += f" {item}"
        elif len(item) <= room:
            lines.append(f"  {item}")
        else:
            lines += _broken(shlex.split(item), room)
    # Every line but the last ends in a backslash, behind a blank unless the next one continues its word.
    glue = [" \\" if following.startswith(" ") else "\\" for following in lines[1:]]
    return [line + mark for line, mark in zip(lines, [*glue, ""], strict=True)]


def _items(words: Sequence[str]) -> Iterator[str]:
    """An option with its values."""
    yield from map(shlex.join, _options(words))


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    for place, word in enumerate(words):
        if word.startswith("--"):
            yield [word, *takewhile(lambda value: not value.startswith("--"), words[place + 1 :])]


def _broken(words: Sequence[str], room: int) -> Iterator[str]:
    """Option and value apart, and what is still too long in pieces: a piece from the first column continues a word."""
    for word in words:
        quoted = shlex.quote(word)
        if len(quoted) <= room:
            yield f"  {quoted}"
            continue
        step = room - 2
        pieces = [shlex.quote(word[start : start + step]) for start in range(0, len(word), step)]
        yield f"  {pieces[0]}"
        yield from pieces[1:]
