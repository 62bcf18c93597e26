"""What an exporter reads and hands back: a plan with its choices, files, and whether a framework starts it.

A choice is a field of the request or of its stack that changes the price: the optimizer, formats of states, the loss,
what ``--set`` changed. A framework's files carry a choice, or the framework does it unasked; what is left is named in a
remark, so that no file silently starts another run than the one that was priced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from costmodels.layout.split import ends_of_cut, odd_stage
from costmodels.model.model import Model
from costmodels.scenario import REDUCED
from costmodels.stack.adapters import Adapters
from costmodels.stack.choices import chosen
from costmodels.stack.stack import Stack, stack, stack_names
from costmodels.stack.switches import Switches
from costmodels.strategy import AXES
from hardware.catalogue import accelerator, names
from planner.answer.load import strategy_from_plan
from planner.answer.plan import Plan, Stage, Strategy
from planner.answer.text import BY_GROUP, name_in, why_infeasible
from planner.errors import BadRequest
from planner.frameworks.conditions import Facts
from planner.frameworks.registry import FRAMEWORKS
from planner.request.fields import STACK_CHOICES
from planner.request.overrides import changed_stack, written
from planner.request.tables import model_of, stack_of
from planner.rules.rule import words_of


def assumed_stack(request: Mapping[str, Any]) -> Stack | None:
    """The stack that was priced, in its precision, with all that a resolved request chose and changed of it.

    None where the answer holds only a name that the catalogue lacks.
    """
    given = request.get("stack")
    if isinstance(given, Mapping):
        return with_choices(stack_of(given), request)
    known = isinstance(given, str) and given.partition("@")[0] in stack_names()
    return with_choices(stack(str(given)), request) if known else None


def with_choices(known: Stack, request: Mapping[str, Any]) -> Stack:
    """A stack with what a resolved request says of it."""
    changed = changed_stack(known.at(str(request.get("precision") or "bf16")), request.get("changes") or {})
    whole = chosen(changed, **{name: request[name] for name in STACK_CHOICES if request.get(name) is not None})
    capacity = request.get("expert_capacity")
    return whole if capacity is None else whole.changed({"switches.expert_capacity": capacity})


def switches_of(request: Mapping[str, Any]) -> Switches:
    """The switches of the stack that was priced; where the catalogue lacks it, the usual ones and those chosen."""
    unknown = Stack(name="unknown", title="unknown", source="none")
    return (assumed_stack(request) or with_choices(unknown, request)).switches


_ON: Final = {True: "on", False: "off"}
_TASK: Final = {"finetune": "pretrain"}
"""Tasks that learn from the same passes as another: what a file says of one it says of both."""


def _gradients(priced: Stack, precision: str) -> str:
    """The format that gradients are added up in, and the one that they travel in where it is another."""
    formats = {4: "fp32", 2: "fp16" if precision == "fp16" else "bf16"}
    kept, sent = (
        formats.get(size, f"{size} bytes") for size in (priced.gradients.gradient_bytes, priced.gradients.reduce_bytes)
    )
    return kept if kept == sent else f"{kept} reduced in {sent}"


_CHOICES: Final[Mapping[str, Callable[[Any], str]]] = {
    "loss": str,
    "loss_block": lambda tokens: f"{tokens} tokens" if tokens else "whole",
    "expert_capacity": lambda factor: f"{factor:g}" if factor else "unlimited",
    "dropout": _ON.__getitem__,
    "base_precision": lambda name: name or "as trained",
    "task": lambda name: _TASK.get(name, name),
    "reference_model": str,
    "document_length": lambda tokens: f"{tokens} tokens",
    "frozen_layers": str,
    "frozen_embeddings": _ON.__getitem__,
    "images_per_sample": str,
    "image_tokens": lambda tokens: str(tokens or "as the tower has it"),
    "train_tower": _ON.__getitem__,
}
"""Choices that a switch of the stack says alone, and the words for its value."""


def _in_words(priced: Stack, precision: str) -> dict[str, str]:
    """Every choice with its value in words, from the priced stack and the precision."""
    at = priced.switches
    formats = {"optimizer": at.optimizer, "main_grads": _gradients(priced, precision), "main_params": at.main_params}
    formats |= {"fp8_param_gather": _ON[at.fp8_param_gather and precision in REDUCED]}
    return formats | {name: word(getattr(at, name)) for name, word in _CHOICES.items()}


_BRIDGE_GATHERS: Final = frozenset({"fp8", "fp8-current", "mxfp8"})
"""Recipes of Megatron-Bridge that keep weights in 8 bits (``megatron.bridge.training.mixed_precision``)."""


def _done_unasked(target: str, precision: str) -> dict[str, str]:
    """What a framework does as its files are written, where its stack does otherwise."""
    wide = {"main_grads": "fp32"} if precision in FRAMEWORKS[target].wide_gradients else {}
    gathers = {"fp8_param_gather": _ON[precision in _BRIDGE_GATHERS]} if target == "megatron-bridge" else {}
    return wide | gathers


def uncarried_choices(
    request: Mapping[str, Any], target: str, carried: Collection[str], what: str = "files"
) -> tuple[str, ...]:
    """The remark on choices and changes of a request that a target's files leave out; none where they carry all of it.

    ``carried`` are choices, and paths of changes, that the files have or that their exporter remarks on.
    """
    changes: Mapping[str, Any] = request.get("changes") or {}
    known = {*carried, *(f"stack.{name}" for name in carried)}
    left = [f"{name} {value}" for name, value in _differing(request, target).items() if name not in carried]
    left += [f"{path}={written(new)}" for path, new in changes.items() if path not in known]
    return (f"priced with {', '.join(left)}, which these {what} for {target} cannot express",) if left else ()


def _differing(request: Mapping[str, Any], target: str) -> dict[str, str]:
    """Choices of a request that a framework does not make unasked, with their values in words; changes apart."""
    if target not in FRAMEWORKS:
        return {}
    precision, usual = str(request.get("precision") or "bf16"), stack(FRAMEWORKS[target].stack)
    priced = assumed_stack(request) or with_choices(usual, request)
    own, wanted = (
        _in_words(usual.at(precision), precision) | _done_unasked(target, precision),
        _in_words(priced, precision),
    )
    given = request.get("changes") or {}
    # Of Accelerate, TorchAO alone gathers weights in 8 bits.
    narrow = {"fp8_param_gather"} if (target, precision) == ("accelerate", "fp8-current") else set[str]()
    return {
        name: value
        for name, value in wanted.items()
        if value != own[name] and name not in narrow and f"stack.{name}" not in given
    }


LARGEST_NAME: Final = 63 - len("-node-99999999-9-abcde")
"""Characters of a job's name: Kubernetes takes 63, and schedulers number the nodes and make every pod's name unique."""


class Inexpressible(BadRequest):
    """A plan that a target cannot say: the message names the target and what it lacks."""


@dataclass(frozen=True)
class Nodes:
    """Neighbouring nodes of one kind, in the order of the pipeline."""

    group: str
    accelerator: str
    count: int
    gpus_per_node: int


@dataclass(frozen=True)
class Job:
    """One plan with its records read.

    Attributes:
        plan: the whole answer.
        strategy: degrees, switches and stages.
        model: what is trained.
        nodes: the machines, in the order in which ranks are dealt out.
        stack: name of the software stack it was planned for.
    """

    plan: Plan
    strategy: Strategy
    model: Model
    nodes: tuple[Nodes, ...]
    stack: str

    @property
    def gpus(self) -> int:
        """Ranks in all."""
        return int(self.plan.request["gpus"])

    @property
    def gpus_per_node(self) -> int:
        """Ranks of every node."""
        numbers = sorted({part.gpus_per_node for part in self.nodes})
        if len(numbers) > 1:
            held = f"these nodes have {' and '.join(map(str, numbers))} GPUs"
            raise Inexpressible(f"launchers start the same number of ranks on every node; {held}")
        return numbers[0]

    @property
    def vendor(self) -> str:
        """Who made the accelerators; empty where the catalogue does not know them."""
        return self._of_accelerators("vendor")

    @property
    def architecture(self) -> str:
        """Of the accelerators; empty where the catalogue does not know it, or they have several."""
        return self._of_accelerators("architecture")

    def _of_accelerators(self, what: str) -> str:
        known, used = names("accelerator"), {part.accelerator for part in self.nodes}
        found = {str(getattr(accelerator(name), what)) for name in used if name in known}
        return found.pop() if len(found) == 1 else ""

    @property
    def node_count(self) -> int:
        """Nodes in all."""
        return sum(part.count for part in self.nodes)

    @property
    def uneven(self) -> bool:
        """Whether stages hold different numbers of layers."""
        return any(stage.layers * self.strategy.pp != self.model.num_layers for stage in self.strategy.stages)

    @property
    def seq_length(self) -> int:
        """Tokens per sequence."""
        return int(self.plan.request["seq_length"])

    @property
    def precision(self) -> str:
        """Number format of the matrix products, one of ``costmodels.stack.precision.PRECISIONS``."""
        return str(self.plan.request.get("precision") or "bf16")

    @cached_property
    def switches(self) -> Switches:
        """What of the stack was chosen, be it by the request or by the stack itself."""
        return switches_of(self.plan.request)

    @property
    def adapters(self) -> Adapters | None:
        """Adapters that train on frozen weights."""
        found = self.asked("adapters")
        return Adapters.read(str(found)) if found else None

    @property
    def name(self) -> str:
        """A name for the job that every scheduler takes: lower-case letters, digits and dashes, a letter first."""
        plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in self.model.name.lower())
        words = "-".join(filter(None, plain.split("-")))
        named = words if words[:1].isalpha() else f"train-{words}"
        return f"{named[: LARGEST_NAME - len(f'-{self.gpus}')].strip('-')}-{self.gpus}"

    @property
    def hub(self) -> str:
        """The model's name on a hub, "" where it was not asked for by one."""
        return str(self.plan.request["model"].get("hub", ""))

    def asked(self, name: str) -> Any:
        """A field of the request, None where it is not said."""
        return self.plan.request.get(name)


@dataclass(frozen=True)
class Export:
    """What a target reads.

    Attributes:
        files: text by file name; the first one is the target's own, others it refers to.
        program: what every rank runs, script first, as words; empty where a launcher has no such thing.
        environment: variables that go with it.
        remarks: what the reader has to add or to know.
    """

    files: Mapping[str, str]
    program: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


Write = Callable[[Job, str], Export]
"""An exporter: a job and the version of the target, to files."""


def job_of(plan: Plan) -> Job:
    """The plan with its records read."""
    if plan.strategy is None or plan.status == "infeasible":
        raise Inexpressible(f"the plan is infeasible, so there is nothing to launch: {why_infeasible(plan)}")
    if plan.strategy.by_group:
        raise Inexpressible(f"{BY_GROUP}; --format json has them by stage")
    model, cluster, stack = (plan.request.get(name) for name in ("model", "cluster", "stack"))
    if not isinstance(model, Mapping) or not isinstance(cluster, Mapping):
        raise BadRequest("the answer lacks its model and cluster; make it again with `plan --format json`")
    return Job(plan, plan.strategy, model_of(model), _nodes(cluster, plan.strategy), name_in(stack).partition("@")[0])


def _nodes(cluster: Mapping[str, Any], strategy: Strategy) -> tuple[Nodes, ...]:
    """Nodes of every group, in the order in which the pipeline goes over them."""
    parts = cluster.get("groups") or [cluster]
    nodes = [Nodes(str(one["name"]), str(one["accelerator"]), one["nodes"], one["gpus_per_node"]) for one in parts]
    by_name = {one.group: one for one in nodes}
    turn = [stage.group for stage in strategy.stages if stage.group in by_name]
    return tuple(by_name[name] for name in dict.fromkeys([*turn, *by_name]))


def refuse(target: str, reasons: Iterable[tuple[bool, str]]) -> None:
    """Raise ``Inexpressible`` for the first reason that holds: what a target lacks, as the end of a sentence."""
    for holds, reason in reasons:
        if holds:
            raise Inexpressible(f"{target} {reason}")


def groups_in_turn(parts: Sequence[Nodes] | Sequence[Stage]) -> tuple[str, ...]:
    """The remark on which nodes come first where a pipeline goes over several node groups."""
    names = list(dict.fromkeys(part.group for part in parts))
    return (f"rank nodes by node group, in the order of the pipeline: {', then '.join(names)}",) if names[1:] else ()


def chunk_layers(strategy: Strategy, *, folded: bool = False) -> list[int]:
    """Layers of chunk after chunk; looped pipelines pass all stages once a round, folded ones come back."""
    held = [stage.layers for stage in strategy.stages]
    if folded:
        each = [n // 2 for n in held]
        return [*(n - low for n, low in zip(held, each, strict=True)), *reversed(each)]
    try:
        return looped_chunks(held, strategy.vpp)
    except ValueError as reason:
        raise Inexpressible(f"chunks differ: {reason}") from None


def looped_chunks(held: Sequence[int], vpp: int) -> list[int]:
    """Layers of chunk after chunk; embedding and head may take the place of a layer in the first and the last."""
    ends = ends_of_cut(held, vpp, counted=True)
    if ends is None:
        raise ValueError(f"{held[odd_stage(held, vpp)]} layers split over {vpp} chunks")
    embedding, head = ends
    places = [held[0] + embedding, *held[1:]]
    places[-1] += head
    chunks = [n // vpp for n in places] * vpp
    chunks[0] -= embedding
    chunks[-1] -= head
    return chunks


def broken(job: Job, framework: str, *, version: str = "") -> Iterator[str]:
    """Every rule of a framework's version, "" the newest, that the plan breaks, as a sentence's end with its source."""
    row, facts = strategy_from_plan(job.strategy), _facts(job)
    columns = {name: getattr(row, name) for name in AXES}
    for rule in FRAMEWORKS[framework].constraints:
        if rule.holds_in(version) and not np.all(rule.holds(columns, facts)):
            more = {"precision": facts.precision, "accelerator": facts.accelerator}
            words = words_of(row.row(0), facts.model, facts.switches, **more)
            yield f"it takes {rule.sentence.format(**words)} ({rule.source})"


def device_lack(job: Job, framework: str) -> str | None:
    """Why a framework does not run on the accelerators, whatever the strategy; None where it does."""
    facts, any_row = _facts(job), {"tp": np.ones(1, dtype=np.int64)}
    for rule in FRAMEWORKS[framework].constraints:
        if rule.name.endswith("-device") and not np.all(rule.holds(any_row, facts)):
            return f"it takes {rule.sentence.format(accelerator=facts.accelerator)} ({rule.source})"
    return None


def _facts(job: Job) -> Facts:
    own = {
        name: getattr(job, name) for name in ("model", "seq_length", "precision", "switches", "vendor", "architecture")
    }
    batch = job.strategy.global_batch_size
    return Facts(global_batch_size=batch, accelerator=job.nodes[0].accelerator, **own)
