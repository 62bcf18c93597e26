"""How a command ends: one line on stderr and an exit code, whatever happened."""

import difflib
import errno
import os
import sys
import traceback
from _thread import interrupt_main
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Final, Self

import click

from hardware.errors import UnknownName, one_line, same_sense
from planner.errors import BadRequest, MeshwrightError, NoRoom, OutOfTime
from planner.processes import forget_interrupts, interrupted, is_interrupt, remember_interrupt, remembered_interrupts

OK: Final = 0
UNEXPECTED: Final = 1
BAD_REQUEST: Final = 2
INFEASIBLE: Final = 3
OUT_OF_TIME: Final = 4
INTERRUPTED: Final = 130
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""What a stream says that takes no more."""
_AGAIN: Final = 0.1
"""Seconds until an interrupt that was lost comes again, by when the object whose end lost it is gone."""


class Ending:
    """Ends the process: errors become one line, never a traceback, unless one was asked for.

    Args:
        verbose: print the traceback of an unexpected error above its line.
    """

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._again: Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr is None:  # closed before the start
            drop_stderr()
        self._interrupts = remembered_interrupts()
        self._interrupts.__enter__()
        self._ignored, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._again:
            self._again.cancel()
        self._interrupts.__exit__(None, None, None)
        sys.unraisablehook = self._ignored
        if interrupted():
            error = KeyboardInterrupt()
        forget_interrupts()
        if error is None or isinstance(error, SystemExit):
            return
        code, message = verdict(error)
        if code == UNEXPECTED and self._verbose:
            traceback.print_exception(error)
        if message:
            say(message)
        sys.exit(code)

    def _unraisable(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Interrupt again where Python drops an interrupt, as it does with all that an object's end raises."""
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            self._ignored(ignored)
            return
        remember_interrupt()
        self._again = Timer(_AGAIN, interrupt_main)
        self._again.daemon = True
        self._again.start()


def verdict(error: BaseException) -> tuple[int, str]:
    """The exit code of an error and what to say about it."""
    if is_interrupt(error) or isinstance(error, click.Abort):
        return INTERRUPTED, "interrupted"
    match error:
        case click.exceptions.Exit():
            found = error.exit_code, ""
        case BrokenPipeError():  # a reader who has left is nobody's error
            drop_stdout()
            found = OK, ""
        case OSError(filename=None) if error.errno in _FULL:
            drop_stdout()
            found = UNEXPECTED, f"the answer cannot be written: {error.strerror}"
        case OSError(filename=str() as filename):
            found = BAD_REQUEST, f"{filename}: {error.strerror or 'cannot be used'}"
        case click.ClickException():
            found = BAD_REQUEST, _usage(error)
        case MeshwrightError():
            code = (
                OUT_OF_TIME
                if isinstance(error, OutOfTime)
                else UNEXPECTED
                if isinstance(error, NoRoom)
                else BAD_REQUEST
            )
            found = code, _of_folder(error) or str(error) or type(error).__name__
        case _:
            message = f"{type(error).__name__}: {str(error) or 'no message'}"
            found = UNEXPECTED, f"internal error: {message}; run with -v for the traceback"
    return found


def _of_folder(error: MeshwrightError) -> str:
    """What to say of a name that is none of the catalogue's, but that of a folder, or of a link that leads nowhere."""
    if not isinstance(error, UnknownName):
        return ""
    try:
        path = Path(error.name)
        is_folder, is_link = path.is_dir(), path.is_symlink()
    except (OSError, ValueError):
        return ""
    what = "a folder; name a file in it" if is_folder else "a link that leads to no file"
    return f"{error.name}: expected a {error.kind}, and this is {what}" if is_folder or is_link else ""


def write_error(option: str, path: Path, error: OSError) -> MeshwrightError:
    """What is wrong where a file for the answer is not written: the name asked for, or nothing but its room."""
    if error.errno in _FULL:
        return NoRoom(path, f"the answer cannot be written: {error.strerror}")
    return BadRequest(f"{option}: {path} cannot be written: {error.strerror or error}")


def say(message: str) -> None:
    """One line of talk on stderr; where that takes nothing, the answer and the exit code must do."""
    try:
        click.echo(f"plan: {one_line(message)}", err=True)
    except OSError:
        drop_stderr()


def drop_stdout() -> None:
    """Stop writing to a pipe whose reader has left, also when the interpreter flushes at the end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None  # Python's own value for a stream that is not there


def drop_stderr() -> None:
    """Talk to nobody where stderr is closed or full, also when the interpreter flushes at the end."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    if nobody != 2:
        os.dup2(nobody, 2)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - it lives as long as the process


def _near(error: click.NoSuchOption) -> str:
    """What may have been meant; nothing where no option comes near."""
    taken = {name for param in _params(error) for name in param.opts}
    for names, meant, says in _OTHER_WORDS:
        if error.option_name in names and meant in taken:
            return f"; {meant} {says}"
    if error.option_name in _OF_SIZE:
        return f"; `plan size` takes {' and '.join(_OF_SIZE)}"
    # What begins with the word that was typed may share less with it than shorter options do.
    begun = [name for name in taken if name.startswith(error.option_name)]
    # The dashes, which click compares too, make short words alike that are not.
    bare = [name.removeprefix("--") for name in error.possibilities or ()]
    like = [f"--{name}" for name in difflib.get_close_matches(error.option_name.removeprefix("--"), bare)]
    possible = same_sense(error.option_name, sorted(begun) or like)
    return f"; did you mean {' or '.join(possible)}?" if possible else ""


def _params(error: click.NoSuchOption) -> list[click.Parameter]:
    return error.ctx.command.params if error.ctx else []


_OF_SIZE: Final = ("--deadline", "--budget")
_OTHER_WORDS: Final = (
    (("--nodes", "--num-nodes", "--nnodes"), "--gpus", "takes all of them: nodes times GPUs of a node"),
    (("--lost", "--failed", "--lost-nodes", "--lost-gpus"), "--gpus", "takes the number of GPUs that are left"),
    (("--pin", "--pins"), "--tp", "and every other axis are options, as in --tp 4 --pp ..8"),
    (("--framework",), "--for", "takes the framework that starts the plan, --stack the software whose speed is priced"),
    (("--num-gpus", "--n-gpus", "--world-size"), "--gpus", "takes the number of GPUs"),
    (
        ("--gpu", "--gpu-type", "--gpu-model", "--accelerator", "--hardware"),
        "--cluster",
        "names the machines, as in dgx-h100",
    ),
    (("--day", "--days", "--hours", "--within"), "--deadline", "takes the longest training, as in 30d or 720h"),
    (("--cost", "--dollars", "--max-cost"), "--budget", "takes the most dollars, as in 500k"),
    (
        ("--batch", "--batch-size", "--gbs"),
        "--global-batch",
        "takes sequences per iteration, --micro-batch those at a time",
    ),
)
"""Options of other programs and words of people: the option that takes what they say, and how."""


_ARGUMENTS: Final = {
    "A": "a file of a plan, a run or a job, or the id of a published run",
    "PLAN": "a file that `plan --format json` wrote",
    "PLAN.json": "a file that `plan --format json` wrote",
    "STUDY": "a TOML file with lists of values; docs/studies.md explains it",
    "QUEUE.toml": "a file with a cluster and [[jobs]]; docs/jobs.md explains it",
    "STORE|ANSWER": "what `plan sweep` keeps its answers in, or a command wrote with --format json",
    "NAME": "`plan list` shows them",
    "DOCUMENT": "request, run, plan ...; `plan schema --help` lists them",
    "FILE...": "runs, logs, answers of plan probe, nccl-tests, timed products",
}
"""What an argument is, by its placeholder."""


def _usage(error: click.ClickException) -> str:
    """Click's finding without its frame, in the form of the other errors."""
    hint = " (`plan --help` shows what there is)"
    match error:
        case click.NoSuchOption():
            return f"no such option {error.option_name}{_near(error) or hint}"
        case click.MissingParameter(param=click.Parameter() as param, ctx=click.Context() as ctx):
            name, said = param.metavar or param.human_readable_name, ""
            if isinstance(param, click.Option):
                name = f"{param.opts[0]} {param.make_metavar(ctx)}"
                said = f": {param.help[:1].lower()}{param.help[1:]}".rstrip(".") if param.help else ""
            elif name in _ARGUMENTS:
                said = f": {_ARGUMENTS[name]}"
            return f"{ctx.command_path} needs {name}{said}"
        case click.exceptions.NoArgsIsHelpError(ctx=click.Context(command=click.Group() as group) as ctx):
            near = f"{', '.join(group.commands)} (`{ctx.command_path} --help` explains them)"
            return f"{ctx.command_path} needs more words, such as one of {near}"
        case click.BadParameter(param=click.Parameter() as param):
            name = param.opts[0] if isinstance(param, click.Option) else param.name
            return f"{name}: {error.message}"
        case click.BadOptionUsage():
            return f"{error.option_name}: {error.message}"
        case _:
            message = error.format_message().removeprefix("Got ")
            stray = getattr(error, "ctx", None) if message.startswith("unexpected extra argument") else None
            hint = f"; `{stray.command_path} --help` shows what it takes" if stray else ""
            return message[:1].lower() + message[1:] + hint
