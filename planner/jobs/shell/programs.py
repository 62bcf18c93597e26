"""Programs whose output follows from their words and from what they read, where both are known."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from planner.jobs.shell.state import Shell, is_known
from planner.jobs.shell.variables import calculated, value_of

Done = str | None
"""What a program prints; None where it is not known."""
Program = Callable[[Shell, list[str]], Done]

_ESCAPED: Final = {"n": "\n", "t": "\t", "\\": "\\", "r": "\r", "a": "\a", "b": "\b", "0": "\0", "e": "\x1b", '"': '"'}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[0]), text)


def _echo(shell: Shell, words: list[str]) -> Done:
    signs = ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        signs += words.pop(0)
    text = " ".join(words)
    return (_unescaped(text) if "e" in signs else text) + ("" if "n" in signs else "\n")


_WIDTHS: Final = re.compile(r"%[-0 +#]*(\d*)(?:\.(\d+))?")


def _printf(shell: Shell, words: list[str]) -> Done:
    if words[:1] == ["-v"]:
        return None
    form, *values = [one for one in words if one != "--"] or [""]
    places = re.findall(r"%[-0 +#]*\d*(?:\.\d+)?([sdiqbxXofeg])", form)
    if not places:
        return _unescaped(form).replace("%%", "%")
    shell.affordable(sum(int(width or 0) + int(digits or 0) for width, digits in _WIDTHS.findall(form)))
    turns = [values[at : at + len(places)] for at in range(0, max(len(values), 1), len(places))]
    try:
        return "".join(_formatted(form, turn) for turn in turns)
    except ValueError:
        return None


def _formatted(form: str, values: Sequence[str]) -> str:
    left = list(values)

    def value(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        text = left.pop(0) if left else ""
        kind = found[2]
        if not is_known(text) and found[1] == "" and kind in "sqbd":
            return text
        if kind in "sqb":
            return f"%{found[1]}s" % (_unescaped(text) if kind == "b" else text)
        return f"%{found[1]}{kind}" % (float(text or 0) if kind in "feg" else int(text or "0", 0))

    return re.sub(r"%([-0 +#]*\d*(?:\.\d+)?)([sdiqbxXofeg])|%%", value, _unescaped(form))


def _seq(shell: Shell, words: list[str]) -> Done:
    separator, width = "\n", False
    while words and words[0].startswith("-") and not words[0][1:2].isdigit():
        sign = words.pop(0)
        width = width or sign == "-w"
        separator = words.pop(0) if sign == "-s" and words else separator
    try:
        numbers = [int(one) for one in words]
    except ValueError:
        return None
    first, step, last = (1, 1, *numbers) if len(numbers) == 1 else (numbers[0], 1, numbers[-1])
    step = numbers[1] if len(numbers) == 3 else step
    if not numbers or not step:
        return None
    found = [str(one) for one in range(first, last + (1 if step > 0 else -1), step)[:10_000]]
    wide = max(map(len, found), default=0) if width else 0
    return separator.join(one.zfill(wide) for one in found) + "\n" if found else ""


def _read(shell: Shell, names: Sequence[str]) -> str | None:
    """What a program reads: files, else its input."""
    files = [one for one in names if one != "-"]
    if files:
        texts = [shell.file(one) for one in files]
        return None if None in texts else "".join(one or "" for one in texts)
    if shell.input is None:
        return None
    text = "".join(shell.input)
    shell.input.clear()
    return text


def _known_input(shell: Shell, names: Sequence[str]) -> str | None:
    text = _read(shell, names)
    return text if text is not None and is_known(text) else None


def _wc(shell: Shell, words: list[str]) -> Done:
    signs = "".join(one[1:] for one in words if one.startswith("-"))
    names = [one for one in words if not one.startswith("-")]
    before = list(shell.input or ())
    text = _read(shell, names)
    if text is None:
        return None
    if not is_known(text):
        return _devices(shell, text, before) if signs == "l" else None
    counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode()), "m": len(text)}
    if len(signs) != 1 or signs not in counts:
        return None
    return " ".join([str(counts[signs]), *names]) + "\n"


def _devices(shell: Shell, text: str, before: list[str]) -> str | None:
    """Lines of what lists nodes, where their number is known otherwise."""
    nodes = value_of(shell, "SLURM_NNODES")
    lists = [one.text for one in shell.unknowns.of(text)]
    if nodes and len(lists) == 1 and lists[0].startswith(("$(scontrol show hostname", "$(scontrol show hostnames")):
        return nodes + "\n"
    shell.input = before
    return None


def _basename(shell: Shell, words: list[str]) -> Done:
    last = words[0].rstrip("/").rpartition("/")[2] if words else ""
    if not words or not is_known(last):
        return None
    ending = words[1] if len(words) > 1 else ""
    return (last.removesuffix(ending) if last != ending else last) + "\n"


def _dirname(shell: Shell, words: list[str]) -> Done:
    path = words[0].rstrip("/") if words else ""
    if not is_known(path.rpartition("/")[2]):
        return None
    return (posixpath.dirname(path) or ("/" if words and words[0].startswith("/") and not path else ".")) + "\n"


def _real_path(shell: Shell, words: list[str]) -> Done:
    names = [one for one in words if not one.startswith("-")]
    return posixpath.normpath(names[0]) + "\n" if len(names) == 1 else None


def _filter(words: str, change: Callable[[re.Match[str], Sequence[str]], Iterable[str]]) -> Program:
    """A program that makes lines of the known lines that it reads, where its words are of a pattern."""

    def run(shell: Shell, given: list[str]) -> Done:
        found = re.fullmatch(words, " ".join(given))
        text = _known_input(shell, []) if found else None
        return None if text is None or not found else "".join(change(found, text.splitlines(keepends=True)))

    return run


def _columns(found: re.Match[str], lines: Sequence[str]) -> Iterator[str]:
    """Some cells of every line."""
    separator = found["a"] or found["b"] or "\t"
    for line in (one.rstrip("\n") for one in lines):
        cells, picked = line.split(separator), list[str]()
        for first, dash, last in (span.partition("-") for span in found["n"].split(",")):
            end = int(last) if last else len(cells) if dash else int(first)
            picked += cells[int(first or 1) - 1 : end]
        yield (separator.join(picked) if separator in line else line) + "\n"


def _tee(shell: Shell, words: list[str]) -> Done:
    text = _read(shell, [])
    if text is None:
        return None
    for name in (one for one in words if not one.startswith("-")):
        before = shell.state.files.get(name, "") if "-a" in words else ""
        shell.state.files[name] = before + text
    return text


def _expr(shell: Shell, words: list[str]) -> Done:
    """Whole numbers only: what has a point is left alone."""
    text = " ".join(words).strip()
    if not re.fullmatch(r"[\d\s+*/%()-]*", "".join(one for one in text if is_known(one))):
        return None
    return calculated(shell, text, f"$(expr {text})") + "\n"


def _copy(shell: Shell, words: list[str]) -> Done:
    names = [one for one in words if not one.startswith("-")]
    if len(names) == 2 and (text := _read(shell, names[:1])) is not None:
        shell.state.files[names[1]] = text
    return ""


def _xargs(shell: Shell, words: list[str]) -> Done:
    text = None if words else _read(shell, [])
    return None if text is None else " ".join(text.split()) + "\n"


_LINES: Final = r"(?:-n *|-)?(\d*)"
PROGRAMS: Final[dict[str, Program]] = {
    "echo": _echo, "printf": _printf, "seq": _seq, "wc": _wc, "basename": _basename, "dirname": _dirname,
    "realpath": _real_path, "readlink": _real_path, "tee": _tee, "cp": _copy,
    "xargs": _xargs, "pwd": lambda shell, words: (value_of(shell, "PWD") or ".") + "\n",
    "cat": lambda shell, words: None if any(re.match("-.", one) for one in words) else _read(shell, words),
    "expr": _expr,
    "cut": _filter(r"(?:-d *(?P<a>.) )?-f *(?P<n>[\d,-]+)(?: -d *(?P<b>.))?", _columns),
    "head": _filter(_LINES, lambda found, lines: lines[: int(found[1] or 10)]),
}  # fmt: skip
