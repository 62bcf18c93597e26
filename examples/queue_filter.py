"""A hook for a queue: for each job, whether it can run here at all and on how many GPUs it should.

Reads one JSON object a line on stdin and writes one a line on stdout, so that any scheduler can call it. ::

    {"id": "j1", "model": "llama3-8b", "gpus": [16, 32, 64], "deadline_days": 300}
    {"id": "j1", "feasible": true, "gpus": 64, "days": 283.6, "gpu_hours": 435576, "strategy": {...}}

The answer is the smallest allowed number of GPUs that meets the deadline; without one, the smallest that runs.
Further fields of a job (cluster, stack, global_batch_size, seq_length, tokens, pins) go into the question.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from planner import MeshwrightError, PlanRequest, plan

OWN = ("id", "gpus", "deadline_days")


def decided(job: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict on one job."""
    question = {name: value for name, value in job.items() if name not in OWN}
    reason = "no number of GPUs was allowed"
    for gpus in sorted(job["gpus"]):
        try:
            answer = plan(PlanRequest(gpus=gpus, top=0, **question))
        except MeshwrightError as error:
            reason = str(error)
            continue
        if answer.strategy is None or answer.prediction is None:
            reason = f"{gpus} GPUs: {answer.rejected[-1].example}"
            continue
        days = answer.prediction.training_days
        if days > job.get("deadline_days", days):
            reason = f"{gpus} GPUs: {days:.1f} days, {job['deadline_days']} allowed"
            continue
        chosen = {"gpus": gpus, "days": days, "gpu_hours": answer.prediction.gpu_hours}
        return {"id": job["id"], "feasible": True, **chosen, "strategy": answer.strategy.model_dump(exclude={"stages"})}
    return {"id": job["id"], "feasible": False, "reason": reason}


def main() -> None:
    """Jobs in, verdicts out."""
    for text in sys.stdin:
        if text.strip():
            print(json.dumps(decided(json.loads(text))), flush=True)


if __name__ == "__main__":
    main()
