"""Which measured runs waited for every kernel that they launched."""

import pytest

from planner.runs.words.launch_words import launch_changes, unmended

CHRONICLE = "bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md, section"
PREQUEL = f'{CHRONICLE} "Another round of NHEADS"'


@pytest.mark.parametrize(
    ("source", "gpus", "notes", "blocking"),
    [
        (PREQUEL, 384, None, True),
        (PREQUEL, 320, None, True),
        (PREQUEL, 160, None, False),
        (PREQUEL, 80, "kernel launches blocking", True),
        (PREQUEL, 160, "kernel launches async", False),
        ("another paper", 384, None, False),
    ],
)
def test_bloom_trials_wait_where_they_would_hang_and_where_they_say_so(source, gpus, notes, blocking):
    row = {"source": source, "strategy": {"gpus": gpus}, "stack": {"notes": notes}}
    assert launch_changes(row) == ({"blocking_launches": True} if blocking else {})


@pytest.mark.parametrize(
    ("source", "framework", "notes", "bound"),
    [
        ("Megatron-Bridge skills/ performance study notes (2026)", "Megatron-Bridge 600d069", None, False),
        ("Megatron-Bridge docs performance-summary", "Megatron-Bridge (NeMo 26.06 container)", None, True),
        ("NVIDIA dgxc-benchmarking v25.05, deepseek-v3 recipe README", "NeMo 2.0", None, False),
        ("NVIDIA dgxc-benchmarking v25.04, llama3.1 recipe README", "NeMo 2.0", None, True),
        ("a run of mine", "Megatron-Core", "processes unbound", False),
        ("a run of mine", "Megatron-Core", None, True),
    ],
)
def test_processes_are_bound_unless_the_run_says_otherwise_or_is_known_not_to_be(source, framework, notes, bound):
    row = {"source": source, "strategy": {"gpus": 8}, "stack": {"framework": framework, "notes": notes}}
    assert launch_changes(row) == ({} if bound else {"bound_processes": False})


@pytest.mark.parametrize(
    ("source", "notes", "early"),
    [
        (f'{CHRONICLE} "Best TFLOPs"', "second iteration only", True),
        (f"{CHRONICLE} on CUDA_LAUNCH_BLOCKING", None, True),
        (f'{CHRONICLE} "NHEADs comparison"', "dated 02-24", True),
        (f'{CHRONICLE} "48 node contenders"', "column prints another batch; dated 02-21", True),
        (f'{CHRONICLE} "GBS Variations"', "dated 02-25", False),
        ("another log", "dated 02-24", False),
    ],
)
def test_bloom_trials_before_their_machine_was_set_right_ran_unbound_and_are_not_fitted_to(source, notes, early):
    row = {"source": source, "strategy": {"gpus": 8}, "stack": {"notes": None}, "notes": notes}
    assert unmended(row) is early
    assert launch_changes(row) == ({"bound_processes": False} if early else {})
