"""Which measured runs waited for every kernel that they launched."""

import pytest

from planner.validation.launch_words import launch_changes

PREQUEL = 'bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md, section "Best TFLOPs"'


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
