"""YAML as the exporters write it and the readers take it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hardware.errors import BadFile, not_parsed
from hardware.files import check_depth

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
    """What a YAML text holds.

    Raises:
        ValueError: no YAML, or nested too deeply.
    """
    try:
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - one of the two that are safe
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("beyond the parser's nesting depth") from None


def yaml_value(text: str) -> Any:
    """What a word of a command line stands for as YAML; itself where it is none."""
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def yaml_table(text: str, path: Path) -> dict[str, Any]:
    """The table of fields that a YAML file holds.

    Raises:
        BadFile: it is no YAML, or no table.
    """
    try:
        found = parse_yaml(text)
        check_depth(found)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, not_parsed("YAML", error)) from None
    if not isinstance(found, dict):
        raise BadFile(path, f"expected a table of fields, got a {type(found).__name__}")
    return found
