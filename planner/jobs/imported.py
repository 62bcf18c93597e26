"""What a file of another program asks for, before it is a request, and what its batch is once the devices are known.

Apart from the axes of a strategy, readers put among the pins what can only be resolved once the devices are known:

- ``steps``: micro-batches, or local batches, of every data-parallel rank in an iteration.
- ``local``: sequences that every data-parallel rank takes at a time, of which the batch is a multiple.
- ``copies``: groups of data-parallel ranks that share one copy of the states each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, Literal

from costmodels.stack.stack import stack as find_stack
from costmodels.stack.stack import stack_names
from planner.answer.text import plural
from planner.errors import BadRequest
from planner.jobs.options import Document


@dataclass(frozen=True)
class Length:
    """How long a file has the training.

    Attributes:
        count: how many.
        of: iterations, sequences or tokens.
        word: the file's own for it.
    """

    count: int
    of: Literal["iterations", "sequences", "tokens"]
    word: str

    def tokens(self, batch: int, seq_length: int) -> int:
        """Tokens of the whole run; 0 where what they follow from is 0, being unknown."""
        each = {"iterations": batch * seq_length, "sequences": seq_length, "tokens": 1}[self.of]
        return self.count * each

    def described(self, batch: int, seq_length: int) -> str:
        """The same in words, with what it was multiplied from."""
        sides = {"iterations": (batch, seq_length), "sequences": (seq_length,), "tokens": ()}[self.of]
        product = " x ".join(f"{side:,}" for side in (self.count, *sides))
        found = self.tokens(batch, seq_length)
        whole = f" = {found:,}" if sides else ""
        return f"{self.word}: {product}{whole} training tokens; days and cost are for these"


@dataclass(frozen=True)
class ImportedJob:
    """What a file of another program says of a job: fields and pins of a request, and what else there is.

    Attributes:
        fields: of ``PlanRequest``; what the file leaves open is absent.
        pins: the strategy, by axis.
        layers: of every stage, where the file says.
        recomputed: of these, the first so many, where the file says it and recomputation is partial.
        remarks: what else a reader of the answer should know.
        assumed: what the file leaves open and was filled in, with the reason and the option that says otherwise.
        unpriced: what the file says and is not priced, with its likely effect on time or memory.
        missing: what must be said before there is a price, with the option that says it.
        framework: that reads the file, by the name of its exporter, where one does.
        length: of the training, where the file says it.
        lacks: why it says no model, where it names one that is not known.
        unsaid: what no default stands for where neither another file nor the user says it, by field, with the option.
        filled: names of fields, and of pins as ``pins.tp``, that the file leaves to its framework's defaults; what
            another file of the same job says of them counts.
        origins: the file that each of these names is from, where several files were joined.
        measured: what a log reports of the run, as ``measured`` of a ``run/1`` document; empty of other files.
        suspect: whether that is a figure and no measurement, since the time never settles.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    recomputed: tuple[int, ...] | None = None
    remarks: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    framework: str | None = None
    length: Length | None = None
    lacks: str = ""
    unsaid: Mapping[str, str] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()
    origins: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    suspect: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """All that is to be said of it, one sentence each: missing first, then assumed, not priced, and the rest."""
        return (*self.missing, *self.assumed, *self.unpriced, *self.remarks)

    def asks_for(self, name: str) -> bool:
        """Whether a line of what is missing names the option ``--name``."""
        return any(f"--{name}" in re.split(r"[\s,;.]+", line) for line in self.missing)


def joined(*jobs: ImportedJob) -> ImportedJob:
    """One job of several that say parts of it; what a later one says stands, and changes and sentences add up."""
    fields = {name: value for one in jobs for name, value in one.fields.items()}
    pins = {name: value for one in jobs for name, value in one.pins.items()}
    changes = {path: value for one in jobs for path, value in (one.fields.get("changes") or {}).items()}
    last = {
        name: next((said for one in reversed(jobs) if (said := getattr(one, name))), getattr(ImportedJob(), name))
        for name in ("layers", "recomputed", "framework", "length", "lacks")
    }
    filled = frozenset(name for one in jobs for name in one.filled)
    return ImportedJob(
        {**fields, **({"changes": changes} if changes else {})}, pins, **last, **sentences(jobs), filled=filled
    )


def sentences(jobs: Sequence[ImportedJob]) -> dict[str, Any]:
    """All that is to be said of some jobs, by the attribute, each sentence once."""
    kinds = ("remarks", "assumed", "unpriced", "missing")
    return {name: tuple(dict.fromkeys(line for one in jobs for line in getattr(one, name))) for name in kinds}


def llama_shape(at: Document, *names: str) -> dict[str, Any]:
    """A decoder of Llama's kind by the sizes that a file has, as fields of ``costmodels.model.model.from_shape``."""
    kind = {"gated_ffn": True, "activation": "swiglu", "position": "rotary", "norm": "rmsnorm"}
    return {"name": "given", **kind, **at.each(*names)}


_BATCH: Final = ("global_batch_size", "pins.micro_batch_size")


def complete(
    fields: Mapping[str, Any], pins: Mapping[str, Any], *, asked: Collection[str] = (), length: Length | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and pins with what follows from the number of devices: copies of states, and batches given in steps.

    And the tokens that all of the training has, where they are not given.

    Args:
        fields: of the request.
        pins: of the request, and the words above.
        asked: names that were given apart from the file, such as ``pins.tp``; a batch among them is not the file's.
        length: of the training, as the file has it.

    Raises:
        BadRequest: the sizes of batches contradict each other.
    """
    fields, pins = dict(fields), dict(pins)
    if "gpus" not in fields and (gpus := prod(_one(pins.get(axis, 0)) for axis in ("tp", "pp", "cp", "dp"))):
        fields["gpus"] = gpus
    copies, steps, local = (pins.pop(name, None) for name in ("copies", "steps", "local"))
    tp, pp, cp = (_one(pins.get(name, 1)) for name in ("tp", "pp", "cp"))
    gpus = _one(fields.get("gpus"))
    if not (gpus and tp and pp and cp) or gpus % (tp * pp * cp):
        return fields, pins  # refused, with the reason, where the degrees are multiplied
    ranks = gpus // (tp * pp)
    if copies:
        alone = copies == ranks and pins.get("zero_stage")  # states that a group of one rank has for itself
        pins |= {"zero_stage": 0} if alone else {"sharding_degree": ranks // copies}
    elif ranks == 1 and pins.get("zero_stage") and "pins.zero_stage" not in asked:
        hosted = gpus == 1 and pins.get("offload") != "none" and _runs_zero_alone(fields.get("stack"))
        pins["zero_stage"] = pins["zero_stage"] if hosted else 0  # a rank alone shares its states with nobody
    if not set(_BATCH) & set(asked):
        _settle_batch(fields, pins, ranks // cp, steps=steps, local=local)
    elif steps and "global_batch_size" not in fields and (micro := _one(pins.get("micro_batch_size", 1))):
        fields["global_batch_size"] = micro * steps * (ranks // cp)
    if length and (tokens := length.tokens(*(_one(fields.get(name)) for name in ("global_batch_size", "seq_length")))):
        fields.setdefault("tokens", tokens)
    return fields, pins


def _runs_zero_alone(stack: object) -> bool:
    """Whether a stack of the catalogue has ZeRO on a single GPU, to offload states."""
    name = str(stack).partition("@")[0]
    return name in stack_names() and find_stack(name).offload.gradients_offloaded


def _one(value: Any) -> int:
    """A single number, 0 where it is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _settle_batch(fields: dict[str, Any], pins: dict[str, Any], replicas: int, *, steps: Any, local: Any) -> None:
    """Fill in the batch or the micro-batch; refuse what does not multiply."""
    batch, micro = fields.get("global_batch_size"), pins.get("micro_batch_size")
    if local and batch and batch % (local * replicas):
        near = max(round(batch / (local * replicas)), 1) * local * replicas
        sizes = f"{plural(local, 'sequence')} x {plural(replicas, 'data-parallel rank')}"
        raise BadRequest(f"a global batch of {batch} is no multiple of {sizes}; {near} is")
    if not steps:
        return
    if batch and micro and batch != micro * steps * replicas:
        each, taken = micro * replicas, micro * steps * replicas
        steps_taken = f"{plural(micro, 'sequence')} x {plural(steps, 'step')}"
        sizes = f"{steps_taken} x {plural(replicas, 'data-parallel rank')} = {taken}"
        near = [f"a batch of {taken}"]
        near += [plural(batch // each, "step")] if batch % each == 0 else []
        near += [f"{taken // batch} pipeline stages (--pp)"] if taken % batch == 0 else []
        raise BadRequest(f"a batch of {batch} contradicts {sizes}; {' or '.join(near)} would do")
    if batch and not micro:
        each, left = divmod(batch, steps * replicas)
        if left or not each:
            sizes = f"{plural(steps, 'step')} x {plural(replicas, 'data-parallel rank')}"
            raise BadRequest(f"a batch of {batch} does not divide into {sizes}; a multiple of {steps * replicas} does")
        pins["micro_batch_size"] = each
    elif micro and not batch:
        fields["global_batch_size"] = micro * steps * replicas
