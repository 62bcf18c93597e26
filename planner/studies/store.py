"""The store: one SQLite file that keeps every answer under its key.

A commit holds whole answers and is on the disk when it returns (rollback journal, ``synchronous = EXTRA``), so that a
process may die at any moment. One process writes at a time: it holds a lock on a file next to the store, which the
system takes back from a process that dies. Readers need no lock, but the right to write: whoever opens a store after
a process died in a commit rolls that commit back.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Self

from planner.answer.plan import Prediction, Strategy
from planner.errors import BadFile, NoRoom
from planner.studies.answer import Finished

SCHEMA: Final = 1
"""Version of the tables; a store of a later one is left alone."""
APPLICATION: Final = 0x6D657368
"""SQLite's mark of whose file this is: "mesh"."""
_FULL: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE}
)
"""What SQLite says of a file that takes no more; of a quota or a largest size it only knows that writing failed."""
PATIENCE: Final = 30.0
"""Seconds to wait for a reader or a slow disk."""

_TABLES: Final = """
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('optimal', 'feasible', 'infeasible', 'failed')),
    document TEXT,
    error TEXT,
    defect INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL,
    finished TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) WITHOUT ROWID;
CREATE TABLE studies (
    name TEXT NOT NULL,
    axes TEXT NOT NULL,
    release TEXT NOT NULL,
    begun TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    PRIMARY KEY (name, axes, release)
) WITHOUT ROWID;
"""

_REPLACE: Final = (
    "ON CONFLICT (key) DO UPDATE SET status = excluded.status, document = excluded.document, error = excluded.error,"
    " defect = excluded.defect, seconds = excluded.seconds, finished = excluded.finished WHERE"
)
_KINDS: Final[dict[Any, str]] = {int: "IS 'integer'", str: "IS 'text'"}
_FIELDS: Final = " AND ".join(
    f"json_type({{0}}document, '$.{part}.{name}') {_KINDS.get(field.annotation, 'IS NOT NULL')}"
    for part, record in (("strategy", Strategy), ("prediction", Prediction))
    for name, field in record.model_fields.items()
    if field.is_required()
)
_WHOLE_OF: Final = (
    "CASE WHEN {0}status = 'failed' THEN 1 WHEN {0}document IS NULL OR NOT json_valid({0}document) THEN 0"
    " WHEN json_type({0}document, '$.request') IS NOT 'object' THEN 0"
    f" WHEN {{0}}status = 'infeasible' THEN 1 ELSE {_FIELDS} END"
)
_WHOLE: Final = _WHOLE_OF.format("")
"""Whether a row holds what was written: an error, or an answer with all that it must have."""


class Store:
    """A store, open; ``with Store.open(path) as store`` closes it.

    Args:
        path: the file.
        connection: SQLite's.
        lock: the file that keeps other writers away; None for a reader.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: IO[str] | None) -> None:
        self.path, self._connection, self._lock = path, connection, lock

    @classmethod
    def open(cls, path: str | Path, *, writing: bool = True) -> Self:
        """Open a store, and make it where there is none and it is to be written.

        Raises:
            BadFile: another process writes it, it is no store, or one of a later version, or the disk refuses.
        """
        place = Path(path)
        _followed(place)
        if place.is_dir() or not place.parent.is_dir():
            raise BadFile(path, "a folder, where a file is expected" if place.is_dir() else f"no folder {place.parent}")
        if place.is_fifo() or place.is_socket():
            raise BadFile(path, "a pipe, where a file is expected")
        if not writing and not place.exists():
            raise BadFile(path, "no such store")
        lock = _locked(place) if writing else None
        try:
            with _as_bad_file(place):
                connection = _connected(place, writing=writing)
        except BadFile:
            _unlocked(place, lock)
            raise
        return cls(place, connection, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and of the lock."""
        self._connection.close()
        _unlocked(self.path, self._lock)

    def statuses(self, keys: Sequence[str]) -> dict[str, str]:
        """The status of those of the keys that are there."""
        return {one.key: one.status for one in self._rows(_among(keys), keys, "NULL")}

    def get(self, keys: Sequence[str]) -> dict[str, Finished]:
        """The answers of those of the keys that are there."""
        return {one.key: one for one in self._rows(_among(keys), keys, "document")}

    def every(self) -> Iterator[Finished]:
        """All answers, in the order of their keys."""
        yield from self._rows("ORDER BY key", (), "document")

    def _rows(self, which: str, keys: Sequence[str], document: str) -> Iterator[Finished]:
        query = f"SELECT key, status, {document}, error, defect, seconds, {_WHOLE} FROM results {which}"  # noqa: S608 - constants
        with _as_bad_file(self.path):
            for key, status, text, error, defect, seconds, whole in self._connection.execute(query, list(keys)):
                if whole:
                    yield Finished(key, status, text, error, seconds, bool(defect))
                else:  # somebody, or a disk, changed it: the others are still answers
                    said = f"row {key:.16} of {self.path.name} is damaged; --retry-failed asks its point again"
                    yield Finished(key, "failed", None, said, seconds)

    def add(self, finished: Iterable[Finished]) -> None:
        """Keep answers, all of them or none; a failed one gives way to a later answer, no other is ever replaced.

        Raises:
            NoRoom: the disk is full; what was kept before stays.
            BadFile: it fails.
        """
        rows = [(one.key, one.status, one.document, one.error, one.defect, one.seconds) for one in finished]
        with _as_bad_file(self.path), self._connection:
            self._connection.executemany(
                "INSERT INTO results (key, status, document, error, defect, seconds) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
                f" {_REPLACE} results.status = 'failed' OR NOT ({_WHOLE_OF.format('results.')})",
                rows,
            )

    def note(self, name: str, axes: dict[str, int], release: str) -> None:
        """Remember that a study was run here."""
        with _as_bad_file(self.path), self._connection:
            row = (name, json.dumps(axes), release)
            self._connection.execute("INSERT OR IGNORE INTO studies (name, axes, release) VALUES (?, ?, ?)", row)

    def take_over(self, part: Path) -> int:
        """Copy the answers of another store that are missing here; how many there were."""
        with _as_bad_file(part):
            self._connection.execute("ATTACH ? AS part", (_address(part, "rw"),))
        try:
            with _as_bad_file(part):
                _check(self._connection, part, "part.")
                with self._connection:
                    columns = "key, status, document, error, defect, seconds, finished"
                    copied = self._connection.execute(
                        f"INSERT INTO results ({columns}) SELECT {columns} FROM part.results WHERE {_WHOLE}"  # noqa: S608 - constants
                        f" {_REPLACE} results.status = 'failed' AND excluded.status != 'failed'"
                    )
                    self._connection.execute("INSERT OR IGNORE INTO studies SELECT * FROM part.studies")
        finally:
            with _as_bad_file(part):
                self._connection.execute("DETACH part")
        return copied.rowcount


def merge(parts: Sequence[str | Path], path: str | Path) -> int:
    """Gather the answers of several stores in one; how many were new to it.

    Raises:
        BadFile: a part is missing or is no store, or another process writes the whole.
    """
    for part in parts:
        if not Path(part).is_file():
            raise BadFile(part, "no such store")
        if _followed(Path(part)) == _followed(Path(path)):
            raise BadFile(part, "cannot be merged into itself; leave it out")
    with Store.open(path) as store:
        return sum(store.take_over(Path(part)) for part in parts)


def _among(keys: Sequence[str]) -> str:
    return f"WHERE key IN ({','.join('?' * len(keys))})"


def _address(path: Path, mode: str) -> str:
    """How SQLite is given a file; "rw" reads where nothing can be written, "ro" would refuse a commit cut off."""
    return f"{_followed(path).as_uri()}?mode={mode}"


def _followed(path: Path) -> Path:
    """The file that links lead to; one that is not there yet is its own."""
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise BadFile(path, str(getattr(error, "strerror", None) or error).lower()) from None
    return path.resolve()


def _connected(path: Path, *, writing: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(_address(path, "rwc" if writing else "rw"), uri=True, timeout=PATIENCE)
    try:
        connection.execute("PRAGMA journal_mode = DELETE" if writing else "PRAGMA query_only = ON")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.text_factory = lambda stored: stored.decode(errors="replace")  # a damaged file may hold no text
        if writing and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.executescript(
                f"BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {_TABLES} COMMIT;"
            )
        _check(connection, path, "")
    except (sqlite3.Error, BadFile):
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, database: str) -> None:
    """Refuse a database that is not this program's, or of a later version."""
    whose = connection.execute(f"PRAGMA {database}application_id").fetchone()[0]
    version = connection.execute(f"PRAGMA {database}user_version").fetchone()[0]
    if not whose and not connection.execute(f"SELECT count(*) FROM {database}sqlite_master").fetchone()[0]:  # noqa: S608 - a constant
        raise BadFile(path, "an empty file, which `plan sweep` would make a store of")
    if whose != APPLICATION:
        raise BadFile(path, "an SQLite file of something else; name another store")
    if version != SCHEMA:
        raise BadFile(path, f"a store of version {version}, this program writes version {SCHEMA}; name another store")


@contextmanager
def _as_bad_file(path: Path) -> Iterator[None]:
    """Turn what SQLite says into one line about the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise _bad_file(path, error) from None


def _bad_file(path: Path, error: sqlite3.Error) -> BadFile:
    """What SQLite says, and what helps where that is known."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _FULL:
        return NoRoom(path, f"{error}; what was finished is kept, free some space and run it again")
    left = [name for name in (f"{path.name}-journal", f"{path.name}-wal") if path.with_name(name).exists()]
    if left and code & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        said = "a process died while it wrote, and this folder cannot be written"
        return BadFile(path, f"{said}; copy {path.name} and {left[0]} to one that can be written")
    return BadFile(path, str(error))


def _locked(path: Path) -> IO[str]:
    """The lock of a store, held until it is closed or the process ends."""
    place = _lock_of(path)
    while True:
        try:
            lock = place.open("a+", encoding="ascii")
        except OSError as error:
            raise BadFile(path, (error.strerror or "cannot be written").lower()) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise BadFile(
                path, f"process {holder or 'unknown'} is writing it; wait for it or name another store"
            ) from None
        if place.exists() and os.path.samestat(place.stat(), os.fstat(lock.fileno())):
            break
        lock.close()  # its last holder removed the file in the meantime
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _unlocked(path: Path, lock: IO[str] | None) -> None:
    if lock is not None:
        _lock_of(path).unlink(missing_ok=True)
        lock.close()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
