"""Every reader of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from planner.errors import BadRequest
from planner.jobs import documents
from planner.jobs.accelerate import read as accelerate
from planner.jobs.assemble import FilesOfJob, read_files
from planner.jobs.deepspeed import read as deepspeed
from planner.jobs.internevo import read as internevo
from planner.jobs.llmfoundry import read as llmfoundry
from planner.jobs.logs.tables import log_reader
from planner.jobs.maxtext import read as maxtext
from planner.jobs.megatron import configurations, dump
from planner.jobs.megatron import read as megatron
from planner.jobs.nanotron import read as nanotron
from planner.jobs.nemo import read as nemo
from planner.jobs.nemo import rl as nemo_rl
from planner.jobs.neox import read as neox
from planner.jobs.reader import Context, JobFile, Reader
from planner.jobs.roll import read as roll
from planner.jobs.torchtitan import read as torchtitan
from planner.jobs.trainers import nested, openrlhf, recipes
from planner.jobs.transformers import read as transformers
from planner.jobs.verl import read as verl

READERS: Final[list[Reader]] = [
    *documents.UNREAD, *megatron.READERS, configurations.ARGUMENTS, *nemo.READERS, configurations.PRIMUS,
    *neox.READERS, configurations.FLAGSCALE, configurations.EXPERIMENT, configurations.FACTORY,
    configurations.SWIFT_FILE,    *verl.READERS, *internevo.READERS, *openrlhf.READERS, *roll.READERS,
    *deepspeed.READERS, *recipes.READERS,
    *nested.READERS, *nemo_rl.READERS,
    *transformers.READERS, recipes.SCRIPTS, *torchtitan.READERS, *accelerate.READERS, *nanotron.READERS,
    *llmfoundry.READERS, *maxtext.READERS, *documents.READERS, log_reader("nanotron"), torchtitan.LOG,
    maxtext.LOG, nemo.LOG, llmfoundry.LOG, neox.LOG, dump.LOG,
    transformers.LOG,
]  # fmt: skip
"""Those of every framework; the first of a form is the usual one, and of logs those first that others resemble."""


def forms() -> tuple[str, ...]:
    """The kinds of files, as ``--from`` takes them."""
    return tuple(dict.fromkeys(reader.form for reader in READERS if reader.form))


def read_job(given: Sequence[Path | JobFile], context: Context, form: str | None = None) -> FilesOfJob:
    """The job of some files, each of the kind that its content says: ``read_files`` with every reader.

    Its framework's stack is priced unless another is asked for; ``BadRequest`` where there is no such kind.
    """
    if form is not None and form not in forms():
        raise BadRequest(f"--from: unknown kind {form!r}; there are {', '.join(forms())}")
    return read_files(given, context, READERS, form)
