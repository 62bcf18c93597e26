"""What a file says in other words than a request's, once the number of devices is known.

Readers put such words among the pins:

- ``steps``: micro-batches, or local batches, of every data-parallel rank in an iteration.
- ``local``: sequences that every data-parallel rank takes at a time, of which the batch is a multiple.
- ``copies``: groups of data-parallel ranks that share one copy of the states each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from planner.answer.text import plural
from planner.errors import BadRequest
from planner.jobs.given import Length

_BATCH: Final = ("global_batch_size", "pins.micro_batch_size")


def settled(
    fields: Mapping[str, Any], pins: Mapping[str, Any], *, asked: Collection[str] = (), length: Length | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and pins with what follows from the number of devices: copies of states, and batches said in steps.

    And the tokens that all of the training has, where they are not given.

    Args:
        fields: of the request.
        pins: of the request, and the words above.
        asked: names that somebody gave beside the file, such as ``pins.tp``; a batch among them is not the file's.
        length: of the training, as the file has it.

    Raises:
        BadRequest: the sizes of batches contradict each other.
    """
    fields, pins = dict(fields), dict(pins)
    copies, steps, local = (pins.pop(name, None) for name in ("copies", "steps", "local"))
    tp, pp, cp = (_one(pins.get(name, 1)) for name in ("tp", "pp", "cp"))
    gpus = _one(fields.get("gpus"))
    if not (gpus and tp and pp and cp) or gpus % (tp * pp * cp):
        return fields, pins  # refused, with the reason, where the degrees are multiplied
    ranks = gpus // (tp * pp)
    if copies:
        pins |= _shared_over(ranks // copies, pins) if ranks % copies == 0 else {"sharding_degree": ranks // copies}
    if not set(_BATCH) & set(asked):
        _settle_batch(fields, pins, ranks // cp, steps=steps, local=local)
    elif steps and "global_batch_size" not in fields and (micro := _one(pins.get("micro_batch_size", 1))):
        fields["global_batch_size"] = micro * steps * (ranks // cp)
    if length and (tokens := length.tokens(*(_one(fields.get(name)) for name in ("global_batch_size", "seq_length")))):
        fields.setdefault("tokens", tokens)
    return fields, pins


def _one(value: Any) -> int:
    """A single number, 0 where it is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _shared_over(degree: int, pins: Mapping[str, Any]) -> dict[str, Any]:
    """States that a group of one rank has for itself are not shared."""
    return {"sharding_degree": degree} if degree > 1 or not pins.get("zero_stage") else {"zero_stage": 0}


def _settle_batch(fields: dict[str, Any], pins: dict[str, Any], replicas: int, *, steps: Any, local: Any) -> None:
    """Fill in the batch or the micro-batch; refuse what does not multiply."""
    batch, micro = fields.get("global_batch_size"), pins.get("micro_batch_size")
    if local and batch and batch % (local * replicas):
        near = max(round(batch / (local * replicas)), 1) * local * replicas
        said = f"{plural(local, 'sequence')} x {plural(replicas, 'data-parallel rank')}"
        raise BadRequest(f"a global batch of {batch} is no multiple of {said}; {near} is")
    if not steps:
        return
    if batch and micro and batch != micro * steps * replicas:
        each, taken = micro * replicas, micro * steps * replicas
        parts = ((micro, "sequence"), (steps, "step"), (replicas, "data-parallel rank"))
        said = f"{' x '.join(plural(*part) for part in parts)} = {taken}"
        near = [f"a batch of {taken}"]
        near += [plural(batch // each, "step")] if batch % each == 0 else []
        near += [f"{taken // batch} pipeline stages (--pp)"] if taken % batch == 0 else []
        raise BadRequest(f"a batch of {batch} contradicts {said}; {' or '.join(near)} would do")
    if batch and not micro:
        each, left = divmod(batch, steps * replicas)
        if left or not each:
            said = f"{plural(steps, 'step')} x {plural(replicas, 'data-parallel rank')}"
            raise BadRequest(f"a batch of {batch} does not divide into {said}; a multiple of {steps * replicas} does")
        pins["micro_batch_size"] = each
    elif not batch:
        fields["global_batch_size"] = (micro or 1) * steps * replicas
