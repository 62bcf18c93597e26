"""A profile: one TOML file with a cluster, a stack, and what their fitted constants rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodels.stack.stack import Stack
from hardware.errors import BadFile
from hardware.files import PROFILE, read
from hardware.records import Cluster
from hardware.writing import cluster_document, short_quantity, toml
from planner.runs.calibrate.document import Constant

_HEADER = """\
# Written by `plan calibrate`: a cluster and a stack fitted to measurements.
# plan --profile THIS-FILE --model ... --gpus ...
"""


def profile(cluster: Cluster, stack: Stack | None, constants: Sequence[Constant], warnings: Sequence[str]) -> str:
    """The text of the profile; `--cluster` and `--stack` read it too."""
    document: dict[str, Any] = {"schema": PROFILE, "cluster": cluster_document(cluster)}
    if stack is not None:
        document["stack"] = stack_document(stack)
    document["calibration"] = {"warnings": list(warnings), "constants": [_stated(one) for one in constants]}
    return _HEADER + toml(document)


def stack_document(stack: Stack) -> dict[str, Any]:
    """The table of a stack file that reads as this stack: what is not as usual, and its name."""
    fields = stack.model_dump(mode="json", exclude_defaults=True)
    return {name: short_quantity(value) if isinstance(value, str) else value for name, value in fields.items()}


def _stated(one: Constant) -> dict[str, Any]:
    stated: dict[str, Any] = {"name": one.name, "before": one.before, "after": one.after}
    if one.standard_error is not None:
        stated["standard_error"] = one.standard_error
    return stated | {"source": one.source}


def check_profile(path: Path) -> None:
    """Refuse to write over a file that is there and is no profile.

    Raises:
        BadFile: it is something else.
    """
    if not path.is_file():
        return
    try:
        known = read(path).get("schema") == PROFILE
    except BadFile:
        known = False
    if not known:
        raise BadFile(path, "exists already and is not a profile; give --output another name")
