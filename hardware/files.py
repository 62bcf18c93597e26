"""The catalogue on disk: names, aliases, and one file read at a time.

Listing a folder is cheap, parsing sixty TOML files is not; so nothing here parses more than it is asked for.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

from pydantic import ValidationError

from hardware.errors import BadFile, MeshwrightError, UnknownName, flatten, kind_of, not_parsed
from hardware.spelling import bare_name, entry_meant
from hardware.units import parse_quantity

Kind = Literal["accelerator", "cluster", "link", "server"]
Document = dict[str, Any]
Built = TypeVar("Built")

ROOT: Final = Path(__file__).parent / "catalogue"
PROFILE: Final = "profile/1"
"""What the field ``schema`` of a file says that holds a cluster and a stack, each as a table."""
LARGEST: Final = 16 * 2**20
"""Bytes of the largest file that is read: a description that is longer is none."""
_DEEPEST: Final = 60
"""Tables and lists within each other that a document may have."""
_MANY_DOTS: Final = 1000
"""Those of a line before its sign of equality, from which a key is taken to be nested too deeply."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_LONGEST_NAME: Final = 100


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """Names of every entry of a kind, sorted; aliases not included."""
    return tuple(sorted(path.stem for path in (ROOT / f"{kind}s").glob("*.toml")))


@cache
def aliases(kind: Kind) -> dict[str, str]:
    """Short names to catalogue names."""
    table: dict[str, str] = read(ROOT / "aliases.toml").get(kind, {})
    return table


def file_of(kind: Kind, name: str) -> Path:
    """Where the catalogue keeps an entry of that name."""
    return ROOT / f"{kind}s" / f"{name}.toml"


def canonical(kind: Kind, name: str) -> str:
    """The catalogue name behind a name or alias, in any case, or however else it is spelled (``hardware.spelling``).

    A cluster may be called by its accelerator, as a driver names it, where one bears a name of the accelerator.

    Raises:
        UnknownName: there is no such entry; the message lists the nearest names.
    """
    lowered = name.strip().lower()
    possible = lowered.isprintable() and len(lowered) <= _LONGEST_NAME
    if possible and file_of(kind, lowered).is_file() and lowered in names(kind):
        return lowered
    short = aliases(kind)
    if lowered in short:
        return short[lowered]
    found = (respelled(kind, lowered) or _of_accelerator(kind, lowered)) if possible else None
    if found is None:
        raise UnknownName(kind, name, [*names(kind), *short], bare_name(lowered))
    return found


def respelled(kind: Kind, name: str) -> str | None:
    """The catalogue name behind a name that is spelled otherwise; None if it is none, or could be several."""
    return entry_meant(
        name, {entry: entry for entry in names(kind)} | aliases(kind), lambda entry: _memory(kind, entry)
    )


def _of_accelerator(kind: Kind, name: str) -> str | None:
    """The cluster called by a name of the accelerator which this is a name of, the first such; None for other kinds.

    Clouds' machines, which such names may mean too, stand last among the short names.
    """
    if kind != "cluster":
        return None
    short = aliases("accelerator")
    device = short.get(name) or respelled("accelerator", name)
    return next((found for one, found in aliases("cluster").items() if device and short.get(one, one) == device), None)


def _memory(kind: Kind, name: str) -> int | None:
    """GiB of an accelerator, as it is called by."""
    return round(parse_quantity(entry(kind, name)["memory"], "bytes") / 2**30) if kind == "accelerator" else None


def entry(kind: Kind, name: str) -> Document:
    """The parsed file of a catalogue entry; a fresh one on every call, the caller may change it."""
    return read(file_of(kind, canonical(kind, name)))


def load(path: Path, build: Callable[[Document], Built], table: str = "") -> Built:
    """What ``build`` makes of a file, or of its ``table`` where it is a profile.

    Raises:
        BadFile: it cannot be read, or a field is wrong.
    """
    document = read(path)
    return built(part(document, table, path) if table else document, build, path)


def built(document: Document, build: Callable[[Document], Built], path: Path) -> Built:
    """What ``build`` makes of a document that was read from a file.

    Raises:
        BadFile: a field is wrong.
    """
    try:
        return build(document)
    except BadFile:
        raise
    except ValidationError as error:
        raise BadFile(path, flatten(error)) from None
    except (MeshwrightError, ValueError) as error:
        raise BadFile(path, str(error)) from None


def read(path: Path) -> Document:
    """A TOML or JSON file as a dictionary.

    Raises:
        BadFile: missing, a folder, too large, not text, not TOML or JSON, or not a table.
    """
    return parsed(read_text(path), path)


def parsed(text: str, path: Path) -> Document:
    """The text of such a file as a dictionary: JSON where its name says so, or it begins as no TOML does.

    Raises:
        BadFile: not TOML or JSON, or not a table.
    """
    json_file = path.suffix.lower() == ".json" or text.lstrip().startswith("{")
    try:
        document = json.loads(text, object_pairs_hook=unique) if json_file else parse_toml(text)
        check_depth(document)
    except (ValueError, RecursionError) as error:
        hint = "; the name has a value already" if "Cannot overwrite" in str(error) else ""
        raise BadFile(path, not_parsed("JSON" if json_file else "TOML", error) + hint) from None
    if not isinstance(document, dict):
        raise BadFile(path, f"expected a table of fields, got {kind_of(document)}")
    return document


def parse_toml(text: str) -> Document:
    """The table that a TOML text holds.

    Raises:
        ValueError: not TOML.
        RecursionError: nested too deeply; of a key with very many dots the parser takes minutes.
    """
    if any(line.partition("=")[0].count(".") > _MANY_DOTS for line in text.splitlines()):
        raise RecursionError("a key has too many dots")
    return tomllib.loads(text)


def check_depth(value: object, left: int = _DEEPEST) -> None:
    """Refuse a document that is nested too deeply for what reads it.

    Raises:
        RecursionError: it is, as of a parser.
    """
    if not left:
        raise RecursionError("values within values")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        check_depth(one, left - 1)


def unique(pairs: list[tuple[str, Any]]) -> Document:
    """An object of JSON as a dictionary, for ``object_pairs_hook``; TOML has this rule of its own.

    Raises:
        ValueError: a name stands in it twice, so that one of the values would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in seen if seen.count(name) > 1)!r:.40} is said twice")
    return found


def part(document: Document, name: str, path: Path) -> Document:
    """What a file says of one thing: all of it, or a profile's table of that name.

    Raises:
        BadFile: a profile without such a table.
    """
    if document.get("schema") != PROFILE:
        return document
    table = document.get(name)
    if not isinstance(table, dict):
        raise BadFile(path, f"this profile has no [{name}] table; give --{name} by name, or another file")
    return table


def as_path(name_or_path: str | Path) -> Path | None:
    """A path if it looks like one: names hold no slash and no suffix of a file.

    Raises:
        BadFile: as ``expanded``.
    """
    if isinstance(name_or_path, Path):
        return name_or_path
    return expanded(name_or_path) if name_or_path.lower().endswith((".toml", ".json")) or "/" in name_or_path else None


def expanded(name: str | Path) -> Path:
    """The path with ``~`` as the home folder that it stands for.

    Raises:
        BadFile: it stands for none.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise BadFile(name, "no such home folder") from None


def read_text(path: Path, *, most: int = LARGEST) -> str:
    """The text of a file of at most so many bytes, without the byte order mark that some editors put first.

    Raises:
        BadFile: missing, a folder, a pipe by name, too large (devices that never end are), or not text.
    """
    with reading(path):
        refuse_pipe(path)
        with path.open("rb") as stream:
            content = stream.read(most + 1)
    if len(content) > most:
        expected = "; a description of a few kB is expected" if most == LARGEST else ""
        raise BadFile(path, f"more than {most // 2**20} MiB{expected}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "not a text file in UTF-8") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one line why the file cannot be read.

    Raises:
        BadFile: missing, a folder, or whatever else the system says.
    """
    try:
        yield
    except FileNotFoundError:
        raise BadFile(path, "no such file") from None
    except IsADirectoryError:
        raise BadFile(path, "a folder, where a file is expected") from None
    except OSError as error:
        raise BadFile(path, (error.strerror or "cannot be read").lower()) from None


def refuse_pipe(path: Path) -> None:
    """Refuse a named pipe, to which nobody may write; what a shell has opened (/dev/stdin, /dev/fd/63) is read.

    Raises:
        BadFile: it is one.
    """
    opened = any(path.absolute().is_relative_to(folder) for folder in ("/dev", "/proc"))
    if path.is_fifo() and not opened:
        raise BadFile(path, "a named pipe, where a file is expected; use /dev/stdin for piped input")


@cache
def source_texts() -> dict[str, str]:
    """Source keys to what they are."""
    return dict(read(ROOT / "sources.toml"))


@cache
def catalogue_hash() -> str:
    """First 12 digits of the SHA-256 over every catalogue file: which facts a plan was made with."""
    return files_hash((path.relative_to(ROOT).as_posix(), path) for path in sorted(ROOT.rglob("*.toml")))


def files_hash(files: Iterable[tuple[str, Path]]) -> str:
    """First 12 digits of the SHA-256 over names of files and what they hold."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
