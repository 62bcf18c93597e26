"""Numbers and switches as they stand in a file: text is neither, and neither is the other."""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false"}


def check_scalar(field: FieldInfo, value: bool | str | int) -> None:
    """Refuse text for a number or a switch, a switch for a number, and a number for a switch.

    Raises:
        ValueError: what pydantic passes on.
    """
    annotation: Any = field.annotation
    wanted = _scalars(annotation, read=any(isinstance(one, BeforeValidator) for one in field.metadata))
    fits = bool in wanted if isinstance(value, bool) else not isinstance(value, str) and wanted != {bool}
    if wanted and not fits:
        given = str(value).lower() if isinstance(value, bool) else f"{value!r:.40}"
        raise ValueError(f"expected {' or '.join(_WORDS[kind] for kind in _WORDS if kind in wanted)}, got {given}")


@cache
def _scalars(annotation: Any, *, read: bool = False) -> frozenset[type]:
    """The plain values that a field takes besides None; none where it takes text or records, or text is ``read``."""
    if read:
        return frozenset()
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return _scalars(kind, read=any(isinstance(one, BeforeValidator) for one in metadata))
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = [_scalars(part) if get_origin(part) is Annotated else frozenset({part} & _WORDS.keys()) for part in parts]
    whole = all(found or part is NoneType for part, found in zip(parts, kinds, strict=True))
    return frozenset().union(*kinds) if whole else frozenset()
