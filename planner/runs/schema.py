"""The document ``run/1``: a question with its answer measured.

``request`` is what ``plan predict --config`` takes. ``said`` and ``assumed`` are paths of the document: what the source
states, and what somebody filled in and why. Fields that nobody knows are refused with the nearest one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from costmodels.model.model import Model
from hardware.errors import check_fields, flatten
from hardware.records import Cluster
from planner.answer.plan import Record
from planner.errors import BadRequest
from planner.request import tables
from planner.request.fields import by_own_name
from planner.request.request import PlanRequest

SCHEMA: Final = "run/1"
Constants = Literal["speed", "memory"]
MemoryKind = Literal["allocated", "reserved", "device"]
Measure = Annotated[float, Field(ge=1e-9, le=1e18)]
Digits = Annotated[float, Field(ge=0, le=1)]


class _Part(Record):
    @model_validator(mode="before")
    @classmethod
    def _known(cls, fields: object) -> object:
        if isinstance(fields, Mapping):
            check_fields(fields, _names(cls))
        return fields


@lru_cache
def _names(record: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in record.model_fields.items())


class Source(_Part):
    """Who published the run."""

    title: str
    """Publisher, document, table or file."""
    where: str = ""
    """Address, or place inside."""
    date: str = ""
    """Year, or year and month, of the measurement: "2025-03"."""
    model: str = ""
    """What the source calls the model."""
    billions: Annotated[float, Field(gt=0)] | None = None
    """Parameters as the source counts them, in billions."""
    printed: str = ""
    """The result in the source's own measure, such as "55.2 % MFU", of runs that people compare with."""
    publication: str = ""
    """What the whole group is called: "Skywork (arXiv 2310.19341)"; the same for all of its runs, as the next two."""
    kind: str = ""
    """Kind of document: "paper", "README", "log" ..."""
    published: str = ""
    """Year or years: "2023-2025"."""


class PeakMemory(_Part):
    """The largest memory of a device during the run."""

    bytes: Annotated[float, Field(gt=0, le=1e18)]
    kind: MemoryKind = "allocated"
    """Handed out to tensors, reserved by the allocator, or all that a driver shows of the device."""
    stage: Annotated[int, Field(ge=0)] | None = None
    """The pipeline stage that was read: 0 where rank 0 reports its own; None is the fullest."""
    rounding: Digits = 0.0
    """Half the last printed digit over the figure."""


class Measured(_Part):
    """What was measured; at least one of the three."""

    iteration_seconds: Measure | None = None
    peak_memory: PeakMemory | None = None
    out_of_memory: bool | None = None
    """True where the run did not fit; left out, false where a time was measured."""
    rounding: Digits = 0.0
    """Half the last printed digit of what the time stands on, over the figure."""

    @property
    def fits(self) -> bool | None:
        """Whether the run fitted, None where nothing says it."""
        if self.out_of_memory is None:
            return True if self.iteration_seconds else None
        return not self.out_of_memory


PATHS: Final = {
    "request": tuple(PlanRequest.model_fields),
    "measured": tuple(Measured.model_fields),
    "source": tuple(Source.model_fields),
}
"""What paths of a document begin with, and the fields behind it."""


@lru_cache(maxsize=1024)
def _check_path(path: str) -> None:
    """Raises ValueError where a path begins with no field that there is; many runs say the same paths."""
    section, _, rest = path.partition(".")
    check_fields({section: rest}, PATHS)
    if rest:
        check_fields({rest.partition(".")[0]: path}, PATHS[section])


class Run(_Part):
    """Schema ``run/1``."""

    schema_: Literal["run/1"] = Field(SCHEMA, alias="schema")
    id: Annotated[str, Field(min_length=1)]
    group: str = ""
    """Source group; runs of one group share what is peculiar to it. The file's name where none is said."""
    constants: tuple[Constants, ...] = ("speed", "memory")
    """What constants are fitted to it: of speed, of the allocator's memory. All runs are evidence of errors."""
    source: Source = Source(title="one's own")
    request: PlanRequest | None = None
    """What ran, as ``plan predict --config`` takes it."""
    measured: Measured = Measured()
    said: tuple[str, ...] = ()
    """Paths that the source itself states."""
    assumed: Mapping[str, str] = Field(default_factory=dict)
    """Paths that somebody filled in, and why."""
    unread: tuple[str, ...] = ()
    """What else the source says, and this document does not: for a person to complete."""
    complete: bool = True
    """The source states all that pricing needs; other runs are priced and not scored."""
    suspect: bool = False
    """Something of it looks wrong; priced and not scored."""
    derived_from: str = ""
    """What the time was derived from; empty where it was measured."""
    not_fitted: str = ""
    """Why no constant may be fitted to it, such as a machine that was not in order."""
    configuration: str | None = None
    """The same for the same configuration in several releases."""
    unpriced: str = ""
    """Why it makes no request, or nothing of it can be compared."""

    @field_validator("request", mode="before")
    @classmethod
    def _tables(cls, request: object) -> object:
        """Tables that many runs share are read once."""
        if not isinstance(request, Mapping):
            return request
        try:
            request = by_own_name(request, PlanRequest.model_fields)
        except BadRequest as error:
            raise ValueError(str(error)) from None
        check_fields(request, PlanRequest.model_fields)
        shared = {
            name: _record(name, json.dumps(request[name], sort_keys=True))
            for name in _SHARED
            if isinstance(request.get(name), Mapping)
        }
        return {**request, **shared}

    @field_validator("said", "assumed")
    @classmethod
    def _paths(cls, paths: Any) -> Any:
        """Paths begin with a field that there is."""
        for path in paths:
            _check_path(path)
        return paths

    @model_validator(mode="after")
    def _whole(self) -> Run:
        if self.request is None and not self.unpriced:
            raise ValueError("request: required, but missing; what `plan predict --config` takes")
        return self

    @property
    def scored(self) -> bool:
        """Complete and not suspect: counts in summaries."""
        return self.complete and not self.suspect

    @cached_property
    def question(self) -> str:
        """All that its price depends on, as text: runs that ask the same have the same."""
        asked = None if self.request is None else self.request.model_dump(mode="json", exclude_unset=True)
        return json.dumps(asked, sort_keys=True)


_SHARED: Final[Mapping[str, tuple[type[Any], Any]]] = {
    "model": (Model, tables.model_of),
    "cluster": (Cluster, tables.cluster_of),
}
"""Tables of a request, and how a record is made of each."""


@lru_cache(maxsize=8192)
def _record(name: str, text: str) -> object:
    kind, build = _SHARED[name]
    return tables.name_or_record(kind, json.loads(text), build)


def run_of(document: Mapping[str, Any]) -> Run:
    """A run out of its document.

    Raises:
        ValueError: it is none; one line with the field and what it should be.
    """
    try:
        return Run.model_validate(document)
    except ValidationError as error:
        raise ValueError(flatten(error)) from None
