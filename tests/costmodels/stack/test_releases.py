import re

import pytest
from click.testing import CliRunner

from costmodels.stack.releases import Release, before_releases
from costmodels.stack.stack import releases, stack, stack_names
from hardware.errors import UnknownName
from planner import PlanRequest, predict
from planner.cli import main
from planner.request.resolve import resolve
from tests.each import each

ASK = {"model": "llama3-8b", "gpus": 8, "cluster": "dgx-h100"}
RELEASED = [(name, one.name) for name in stack_names() for one in releases(name)]


@each("name", stack_names())
def test_releases_are_in_order_go_by_names_of_their_own_and_the_newest_is_today_s(name):
    known = releases(name)
    assert [one.since for one in known] == sorted(one.since for one in known)
    assert len({one.name.lower() for one in known}) == len(known)
    if known and known[-1].stack is None:
        assert stack(f"{name}@{known[-1].name}") == stack(name) == stack(f"{name}@2099-12")


@each(("name", "release"), RELEASED)
def test_a_release_is_what_a_month_of_it_is(name, release):
    known = {one.name: one for one in releases(name)}[release]
    named, dated = stack(f"{name}@{release}"), stack(f"{name}@{known.since}")
    assert named.changed({"release": ""}) == dated.changed({"release": ""})
    if known.stack is not None:
        assert named == stack(known.stack)


@each(("name", "release"), RELEASED)
def test_each_change_differs_from_what_was_before(name, release):
    one = {one.name: one for one in releases(name)}[release]
    for group, values in one.before.items():
        for field in values:
            now = getattr(getattr(stack(name), group), field)
            month = f"{int(one.since[:4]) - 1}{one.since[4:]}" if one == releases(name)[0] else None
            before = stack(f"{name}@{month or releases(name)[releases(name).index(one) - 1].name}")
            assert before.name != name or getattr(getattr(before, group), field) != now


@pytest.mark.parametrize(("name", "moved"), [("torchtitan@2025-03", 66), ("torchtitan@2025-04", 8), ("maxtext", 16)])
def test_a_compiled_loss_reads_logits_three_times_and_writes_their_gradient(name, moved):
    assert stack(name).logits.cross_entropy_traffic == moved


def test_a_loss_that_is_not_compiled_moves_what_eager_kernels_do():
    eager = resolve(PlanRequest(**ASK, stack="torchtitan", changes={"stack.compile": False})).scenario.stack
    assert eager.logits.cross_entropy_traffic == 66


def test_changes_are_taken_back_the_newest_first():
    known = [
        Release(name=name, since=since, reason="so", before={"host": {"kernels_per_layer": count}})
        for name, since, count in (("1", "2024-01", 7), ("2", "2025-01", 8))
    ]
    fields = {"name": "mine", "host": {"kernels_per_layer": 9, "calls_per_layer": 3}}
    counts = [before_releases(fields, known[later:])["host"]["kernels_per_layer"] for later in range(3)]
    assert counts == [7, 8, 9]
    assert fields["host"] == {"kernels_per_layer": 9, "calls_per_layer": 3}


@pytest.mark.parametrize("name", ["torchtitan@2024.12", "torchtitan@", "megatron-core@0.14", "nemo@25.4"])
def test_an_unknown_release_names_the_nearest(name):
    with pytest.raises(UnknownName, match=r"release of stack .*`plan show \S+ --kind stacks` shows all"):
        stack(name)


def test_a_month_picks_the_release_of_its_time_and_the_answer_asks_for_it_again():
    before = predict(PlanRequest(**ASK, stack="torchtitan", as_of="2024-12", pins={"tp": 1, "recompute": "full"}))
    assert before.request["stack"] == "torchtitan@2024-12"
    assert "stack torchtitan as of 2024-12: 7 later changes taken back" in before.defaults
    again = predict(PlanRequest(**before.request))
    assert again.prediction == before.prediction
    today = predict(PlanRequest(**ASK, stack="torchtitan", pins={"tp": 1, "recompute": "full"}))
    assert before.prediction.iteration_seconds > today.prediction.iteration_seconds
    assert resolve(PlanRequest(**ASK, as_of="2021-06")).software.name == "megatron-lm-2021"


def test_a_dry_run_names_the_release():
    asked = ["--model", "llama3-8b", "--gpus", "64", "--stack", "torchtitan", "--as-of", "2024-12", "--dry-run"]
    assert "torchtitan@2024-12" in CliRunner().invoke(main, asked).stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"stack": "torchtitan@2025-03", "as_of": "2024-12"}, "both say a release"),
        ({"as_of": "2024-13"}, "as_of"),
        ({"stack": stack("fsdp"), "as_of": "2024-12"}, "your own stack"),
    ],
)
def test_two_releases_or_none_are_refused(asked, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        resolve(PlanRequest(**(ASK | asked)))


def test_a_release_of_a_stack_is_shown_with_its_switches_and_all_releases():
    shown = CliRunner().invoke(main, ["show", "torchtitan@2024-09"], env={"COLUMNS": "160", "NO_COLOR": "1"})
    today = CliRunner().invoke(
        main, ["show", "torchtitan", "--kind", "stacks"], env={"COLUMNS": "160", "NO_COLOR": "1"}
    )
    assert re.search(r"expandable_segments +no", shown.stdout)
    assert re.search(r"expandable_segments +yes", today.stdout)
    for one in releases("torchtitan"):
        assert f"torchtitan@{one.name}  since {one.since}" in today.stdout
