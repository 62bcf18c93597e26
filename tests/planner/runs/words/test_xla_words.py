"""What XLA did on GPUs when a run was measured."""

import pytest

from planner.runs.words.flat_fields import NOTHING_HIDDEN
from planner.runs.words.xla_words import xla_changes


def axlearn(device="h100-sxm", attention=False, source="apple/axlearn fuji.py (4dae7198, 2024-05-06)", **stack):
    return {
        "source": source,
        "cluster": {"accelerator": device},
        "stack": {"framework": "AXLearn (JAX/XLA)", "attention": attention} | stack,
        "strategy": {"precision_note": "bf16 compute, fp32 parameters"},
    }


def test_axlearn_hides_no_collective_on_gpus_and_all_on_tpus():
    assert dict(NOTHING_HIDDEN).items() <= xla_changes(axlearn()).items()
    assert xla_changes(axlearn("tpu-v5p")) == {}
    assert "overlap.ep" not in xla_changes(axlearn(framework="MaxText (JAX/XLA)"))


@pytest.mark.parametrize(
    "said",
    [
        {"attention": True},
        {"source": "apple/axlearn fuji.py (2025-01-06)"},
        {"source": "apple/axlearn fuji.py"},
        {"framework": "PaxML (JAX, Rosetta, Transformer Engine)"},
        {"notes": "TE attention without flash"},
    ],
)
def test_a_softmax_is_written_out_before_august_2024_unless_other_kernels_run_it(said):
    assert xla_changes(axlearn())["fused_softmax"] is False
    assert "fused_softmax" not in xla_changes(axlearn(**said))
