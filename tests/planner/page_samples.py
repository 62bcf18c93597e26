"""A study and a plan for the tests of the page, in which every name tries to become markup."""

import json
from pathlib import Path

from planner.answer.plan import Plan
from planner.api import plan
from planner.request.request import PlanRequest
from planner.studies.result import Result

EVIL = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;"


def small_plan() -> Plan:
    return plan(PlanRequest(model="llama3-8b", gpus=16, global_batch_size=64, pins={"pp": "2"}))


def results() -> list[Result]:
    """Four sizes on two machines, one of them infeasible and one failed; the axes carry markup."""
    found = []
    for place, (gpus, cluster) in enumerate((gpus, name) for gpus in (8, 16, 32, 64) for name in ("plain", EVIL)):
        axes = {"gpus": gpus, "cluster": cluster}
        if (gpus, cluster) == (8, EVIL):
            found.append(Result(place, axes, "failed", {}, f"no such thing: {EVIL}", None))
            continue
        document = {**_document(gpus, cluster, slow=1.5 if cluster == EVIL else 1.0)}
        if (gpus, cluster) == (8, "plain"):
            document = {"request": document["request"], "rejected": [{"example": "needs 99 GiB"}]}
            found.append(Result(place, axes, "infeasible", document, None, None))
            continue
        found.append(Result(place, axes, "optimal", document, None, None))
    return found


def _document(gpus: int, cluster: str, *, slow: float) -> dict:
    seconds = slow * 64 / gpus
    strategy = {"tp": 2, "cp": 1, "pp": 2, "vpp": 1, "ep": 1, "etp": 1, "dp": gpus // 4, "micro_batch_size": 1}
    strategy |= {"zero_stage": 1, "schedule": "1f1b", "recompute": "none"}
    days = 10 * seconds
    prediction = {"iteration_seconds": seconds, "mfu": 0.4 / slow, "training_days": days, "tokens_per_second": 1e5}
    return {
        "status": "optimal",
        "request": {"model": {"name": "m"}, "cluster": {"name": cluster}, "gpus": gpus, "tokens": 3e11, "pins": {}},
        "strategy": strategy,
        "prediction": prediction | {"cost_dollars": days * gpus * 50},
        "breakdown_seconds": {"compute": 0.8 * seconds, "tp": 0.15 * seconds, "bubble": 0.05 * seconds, "cp": 0.0},
        "provenance": {"version": "0.1.0", "catalogue_hash": "0", "sources": [f"model m: {EVIL}"]},
        "peak_memory_bytes": 60e9,
    }


def data_of(page: str) -> dict:
    """The data that a page carries."""
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def saved(folder: Path, text: str, name: str = "page.html") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
