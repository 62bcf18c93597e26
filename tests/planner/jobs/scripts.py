"""The job of a script of Megatron-LM's arguments, evaluated as the door does."""

from pathlib import Path

from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import READERS
from planner.jobs.script import job_of_script


def megatron_job(script, *, model_known=False):
    found = job_of_script(JobFile(Path("run.sh"), script), Context(known=("model",) if model_known else ()), READERS)
    assert found is not None, "starts nothing that is known"
    return found.job
