"""The planner's branch of the error tree.

::

    MeshwrightError              hardware.errors
    ├── UnknownName, BadQuantity, BadFile, ...
    ├── BadRequest               a request that contradicts itself or asks for the impossible
    ├── NoRoom                   a file for an answer takes no more: a full disk, a quota
    └── OutOfTime                the time limit passed before any plan was found

That no strategy is feasible is not an error but an answer: a plan of status ``infeasible``.
"""

from hardware.errors import BadFile, BadQuantity, MeshwrightError, UnknownName

__all__ = ["BadFile", "BadQuantity", "BadRequest", "MeshwrightError", "NoRoom", "OutOfTime", "UnknownName"]


class BadRequest(MeshwrightError, ValueError):
    """A request that cannot be planned: the message says what, the numbers and the nearest that works."""


class UnfilledPins(BadRequest):
    """Pinned degrees that so many devices cannot make up, as other numbers may."""


class NothingFits(BadRequest):
    """No strategy fits the machines, where a question about the best one was asked."""


class NoRoom(BadFile):
    """A file for an answer that takes no more; the request is not to blame."""


class OutOfTime(MeshwrightError):
    """The time limit passed before any feasible plan was found."""
