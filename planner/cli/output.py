"""Where answers go: stdout or a file, all of it or none; long ones as they are made. And the talk on stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TextIO

from planner.cli.ending import INFEASIBLE, UNEXPECTED, say, write_error
from planner.errors import BadRequest

if TYPE_CHECKING:
    from rich.console import Console

    from planner.studies.result import Result
    from planner.studies.study import Study

_FILE_WIDTH = 100
_UNKNOWN_WIDTH = 80
_NARROWEST, _WIDEST = 20, 1000


def check_writable(output: str, option: str) -> None:
    """Refuse a file that cannot be written.

    Raises:
        BadFile: its folder is that of nobody.
        BadRequest: its folder is missing or takes no files, or it is a folder itself.
        NoRoom: the disk is full.
    """
    from hardware.files import expanded

    path = expanded(output)
    if path.is_dir():
        raise BadRequest(f"{option}: {output} is a folder; name a file in it, such as {path / 'plan.json'}")
    if not path.parent.is_dir():
        raise BadRequest(f"{option}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise BadRequest(f"{option}: the folder {path.parent} cannot be written")
    if not path.exists():
        try:  # what access says nothing of, as in /proc
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise write_error(option, path, error) from None


def write(text: str | Iterable[str], output: str | None, option: str = "--output") -> None:
    """Write the answer, or its pieces, to a file in one step, or to stdout; a reader who has left is nobody's error."""
    pieces = [text] if isinstance(text, str) else text
    if output is not None:
        with _replacing(option, Path(output).expanduser()) as stream:
            stream.writelines(piece.encode() for piece in pieces)
        return
    for piece in pieces:
        put(piece)
    opened().flush()


def put(text: str) -> None:
    """Write a piece of the answer to stdout, which may not know all of its letters."""
    stream = opened()
    stream.write(_encodable(text, stream.encoding or "utf-8"))


def opened() -> TextIO:
    """Stdout; where it is closed the command ends with a word on that."""
    stream: TextIO | None = sys.stdout
    if stream is None:
        say("the answer cannot be written: stdout is closed")
        sys.exit(UNEXPECTED)
    return stream


def _encodable(text: str, encoding: str) -> str:
    """The text in what the stream can write: JSON loses nothing, for its strings have escapes."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        if text.startswith(("{", "[")):
            return re.sub("[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
        return text.encode(encoding, "replace").decode(encoding)
    return text


def parquet_to(found: Iterable[Result], study: Study, place: str | None) -> None:
    """A Parquet file, or its bytes on stdout."""
    from planner.studies.table import write_parquet

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "results.parquet"
        write_parquet(found, study, whole)
        target = nullcontext(opened().buffer) if place is None else _replacing("--results", Path(place).expanduser())
        with whole.open("rb") as source, target as stream:
            shutil.copyfileobj(source, stream)
            stream.flush()


@contextmanager
def _replacing(option: str, path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of a file when all of it is written."""
    try:
        if path.exists() and not path.is_file():  # a pipe or /dev/stdout cannot be replaced
            with path.open("wb") as stream:
                yield stream
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path  # the file is replaced, not its other name
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
            whole = Path(temporary.name)
            try:
                yield temporary.file
                temporary.flush()
                whole.chmod(0o666 & ~_umask())
                whole.replace(path)
            finally:
                whole.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(option, path, error) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def shown(draw: Callable[[Console], None], output: str | None) -> str:
    """What a drawing function prints, for the stream that it will go to."""
    from rich.console import Console

    if output is None:
        stream = _sheet(getattr(sys.stdout, "encoding", None) or "utf-8")
        terminal = sys.stdout is not None and sys.stdout.isatty()
        console = Console(file=stream, force_terminal=terminal or None, highlight=False, legacy_windows=False)
        # A width of 0 is how consoles and COLUMNS say that they know none.
        console.width = min(max(console.width or _UNKNOWN_WIDTH, _NARROWEST), _WIDEST)
    else:
        stream = _sheet("utf-8")
        console = Console(file=stream, width=_FILE_WIDTH, force_terminal=False, highlight=False)
    draw(console)
    stream.seek(0)
    return "".join(f"{line.rstrip()}\n" for line in stream.read().splitlines())


def _sheet(encoding: str) -> TextIOWrapper:
    """Text in memory that says which encoding it is meant for."""
    return TextIOWrapper(BytesIO(), encoding=encoding, errors="replace", newline="")


def deliver(answer: Any, draw: Callable[[Any, Console], None], params: Mapping[str, Any], **said: Any) -> None:
    """Write an answer as --format says, to where --output does.

    ``said`` is how the JSON of a record is written, as pydantic has it.
    """
    output = params["output"]
    if params["form"] != "json":
        write(shown(lambda console: draw(answer, console), output), output)
    elif hasattr(answer, "model_dump_json"):
        write(answer.model_dump_json(by_alias=True, indent=2, **said) + "\n", output)
    else:
        write(as_json(answer), output)


def as_json(document: object) -> str:
    """Plain values as the text of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def end_infeasible(reason: str, params: Mapping[str, Any]) -> NoReturn:
    """End a command whose answer is that nothing works, in one line."""
    talk(params, f"infeasible: {reason}")
    sys.exit(INFEASIBLE)


def talk(params: Mapping[str, Any], *remarks: str) -> None:
    """Remarks on stderr, unless -q asked for silence."""
    for remark in () if params.get("quiet") else remarks:
        say(remark)
