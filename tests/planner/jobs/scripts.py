"""Jobs of files: of a script of Megatron-LM's arguments, evaluated as the door does, and of one file of a kind."""

from pathlib import Path

from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import READERS, read_job
from planner.jobs.script import job_of_script


def megatron_job(script, *, model_known=False):
    found = job_of_script(JobFile(Path("run.sh"), script), Context(known=("model",) if model_known else ()), READERS)
    assert found is not None, "starts nothing that is known"
    return found.job


def import_job(form, path):
    return read_job([path], Context(), form).job
