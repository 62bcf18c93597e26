"""When a run was made, and what its framework did at the time."""

import pytest

from costmodels.stack import stack
from planner.validation.dated import month
from planner.validation.pytorch import stepped


def row(source, accelerator="h100-sxm"):
    return {"source": source, "cluster": {"accelerator": accelerator}, "stack": {"framework": "torchtitan"}}


@pytest.mark.parametrize(
    ("source", "accelerator", "when"),
    [
        ("torchtitan benchmarks/llama3_h100_202412", "h100-sxm", "2024-12"),
        ("torchtitan benchmarks/asyncTP_llama3_h100_2025-06", "h100-sxm", "2025-06"),
        ("torchtitan docs/performance.md (2024 revisions)", "a100-sxm-80gb", "2024-06"),
        ("pytorch/ao float8 and mx training benchmark tables", "h100-sxm", "2025-03"),
        ("pytorch/ao float8 and mx training benchmark tables", "mi300x", "2025-08"),
        ("pytorch/ao float8nocompile comparison table", "h100-sxm", "2025-01"),
        ("a report", "b200", None),
    ],
)
def test_a_source_says_the_month_of_its_runs_or_none(source, accelerator, when):
    assert month(row(source, accelerator)) == when


@pytest.mark.parametrize(
    ("at", "passes", "root", "keeps"),
    [("202412", True, True, False), ("202503", False, True, False), ("202508", False, False, False)],
)
def test_torchtitan_is_priced_as_it_was_at_the_time(at, passes, root, keeps):
    changes = stepped(row(f"benchmarks/llama3_h100_{at}"), stack("torchtitan"))
    assert ("optimizer_traffic" in changes, changes["root_unit"], changes["saves_cudnn"]) == (passes, root, keeps)
    assert stepped(row("benchmarks/llama3_202512"), stack("torchtitan"))["saves_cudnn"]


def test_a_run_of_no_known_month_and_another_framework_keep_what_their_stack_says():
    assert stepped(row("a report"), stack("torchtitan")) == {}
    assert stepped(row("202412"), stack("fsdp")) == {}
