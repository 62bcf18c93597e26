"""Admits Kubernetes jobs that can train what they say: an AdmissionReview on stdin, its review on stdout.

The object names its question in annotations; its GPUs are those of its pods. ::

    metadata:
      annotations: {plan/model: llama3-8b, plan/cluster: dgx-h100}
    spec:
      parallelism: 8          # pods, of which each asks for 8 nvidia.com/gpu

What cannot fit is denied with the planner's line. What fits is admitted, with the degrees as annotations by JSON patch.
An HTTPS server that passes bodies through `review` is the webhook.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any

from planner import MeshwrightError, OutOfTime, PlanRequest, plan

PREFIX = "plan/"
DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "micro_batch_size")


def review(document: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to an AdmissionReview."""
    request = document["request"]
    response = {"uid": request["uid"], **verdict(request["object"])}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def verdict(job: Mapping[str, Any]) -> dict[str, Any]:
    """Allowed with a patch, allowed as it is, or denied with a reason."""
    notes = job.get("metadata", {}).get("annotations") or {}
    question = {name.removeprefix(PREFIX): text for name, text in notes.items() if name.startswith(PREFIX)}
    if "model" not in question:
        return {"allowed": True}
    if any("/" in text or text.endswith((".toml", ".json")) for text in question.values()):
        return denied("models, clusters and stacks are catalogue names")  # a webhook reads no files for a client
    try:
        answer = plan(PlanRequest(gpus=gpus(job), reasons=False, time_limit=8.0, **question))
    except OutOfTime as error:
        return {"allowed": True, "warnings": [f"plan: {error}"]}
    except MeshwrightError as error:
        return denied(" ".join(str(error).split()))
    if answer.strategy is None:
        return denied(answer.rejected[0].example)
    degrees = {name: str(getattr(answer.strategy, name)) for name in DEGREES}
    place = "/metadata/annotations/plan~1"
    patch = [{"op": "add", "path": f"{place}{name}", "value": text} for name, text in degrees.items()]
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }


def gpus(job: Mapping[str, Any]) -> int:
    """GPUs of all pods of a job."""
    spec = job["spec"]
    boxes = spec["template"]["spec"]["containers"]
    each = sum(int(box.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for box in boxes)
    return int(spec.get("parallelism", 1)) * each


def denied(reason: str) -> dict[str, Any]:
    """A refusal with its reason."""
    return {"allowed": False, "status": {"code": 422, "message": f"plan: {reason}"}}


if __name__ == "__main__":
    json.dump(review(json.load(sys.stdin)), sys.stdout)
