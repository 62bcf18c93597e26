import re

import pytest
from click.testing import CliRunner

from costmodels.stack.combined import COMBINED
from costmodels.stack.renamed import RENAMED
from costmodels.stack.stack import GROUPS, PATHS, stack, stack_names
from costmodels.stack.switches import Switches
from planner.cli.app import main
from planner.errors import BadRequest
from planner.render.catalogue import switches
from planner.request.fields import field_of
from planner.request.overrides import FIXED, SWITCHES, changed_stack, known_path, written_path
from tests.each import each


@each("name", Switches.model_fields)
def test_every_switch_says_what_it_does_and_what_frameworks_call_it(name):
    info = Switches.model_fields[name]
    assert info.description
    assert info.json_schema_extra["words"]


def test_no_name_means_two_things():
    assert len(SWITCHES) == len(set(SWITCHES)) == len(Switches.model_fields) + len(COMBINED)
    assert not set(SWITCHES) & set(GROUPS)


@each(("switch", "value"), [(name, value) for name in COMBINED for value in COMBINED[name].fields])
def test_a_switch_that_sets_several_fields_reads_back_as_it_was_set(switch, value):
    for name in stack_names():
        changed = changed_stack(stack(name), {f"stack.{switch}": value})
        assert COMBINED[switch].read(changed) == value, name
        assert changed_stack(changed, {switch: str(value).lower()}) == changed, name


def test_a_switch_goes_by_its_name_alone_or_below_the_stack():
    alone, below = (changed_stack(stack("nemo"), {path: "alltoall"}) for path in ("dispatcher", "stack.dispatcher"))
    assert field_of("dispatcher") == known_path("dispatcher") == "stack.dispatcher"
    assert field_of("optimizer") == "optimizer", "which a request has itself"
    assert alone == below == stack("nemo").changed({"switches.dispatcher": "alltoall"})
    with pytest.raises(BadRequest, match=r"stack\.fused_optimizer: expected true or false, got 'maybe'"):
        changed_stack(stack("nemo"), {"fused_optimizer": "maybe"})


@each("old", [*RENAMED, *(path.partition(".")[2] for path in sorted(PATHS))])
def test_a_path_from_before_fields_were_grouped_is_refused_with_the_one_it_has_now(old):
    home = next((path for path in PATHS if path.partition(".")[2] == old), None)
    new = RENAMED.get(old, home)
    if new in FIXED or old in Switches.model_fields:
        return
    with pytest.raises(BadRequest, match=re.escape(f"stack.{old} is now stack.{written_path(new)}")):
        known_path(f"stack.{old}")


def test_a_stack_is_shown_by_its_switches_and_its_costs_only_where_more_is_asked_for():
    shown, more = (CliRunner().invoke(main, ["show", "megatron-core", *more]) for more in ([], ["-v"]))
    assert shown.exit_code == more.exit_code == 0
    for one in switches("megatron-core"):
        assert re.search(rf"^ +{one.name} ", shown.stdout, re.MULTILINE)
    assert "kernels_per_layer" not in shown.stdout
    assert "host.kernels_per_layer" in more.stdout
    assert "Megatron" in more.stdout.split("supports.")[0]
    assert "(CUDA" not in shown.stdout
