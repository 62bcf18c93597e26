"""YAML as the exporters write it and the readers take it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_TEXT: Final = "tag:yaml.org,2002:str"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C where the package has it, which takes a twentieth of the time."""
_WIDE: Final = 2**20
"""Characters of a line that is never broken: a script stays as it is."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # the package has no types
    """Lists below their key, and scripts as they stand."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - theirs
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    """Plain where no YAML reads it as anything else, in double quotes otherwise."""
    plain = _PLAIN.fullmatch(value) and dumper.resolve(yaml.ScalarNode, value, (True, False)) == _TEXT
    return dumper.represent_scalar(_TEXT, value, style="|" if "\n" in value else None if plain else '"')


_Dumper.add_representer(str, _text)


def yaml_text(document: Mapping[str, Any]) -> str:
    """The document in block style, in its own order, ending with a newline."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE)
    return text


def parse_yaml(text: str) -> Any:
    """What a YAML text holds."""
    try:
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - one of the two that are safe
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
