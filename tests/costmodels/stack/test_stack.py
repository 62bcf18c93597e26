import json
import re

import pytest
from pydantic import ValidationError

from costmodels.pipeline.schedules import SCHEDULES
from costmodels.stack.fields import ATTENTION_KERNELS
from costmodels.stack.renamed import RENAMED
from costmodels.stack.stack import PATHS, Stack, stack, stack_names
from hardware.errors import BadFile, UnknownName
from tests.each import each

MINE = {"name": "mine", "title": "Mine", "source": "measured"}


@each("name", stack_names())
def test_every_stack_loads_under_its_own_name_and_knows_what_it_names(name):
    loaded = stack(name)
    assert loaded.name == name
    assert loaded.title
    assert loaded.source
    assert set(loaded.supports.schedules) <= set(SCHEDULES)
    assert "none" in loaded.supports.schedules
    assert set(loaded.switches.attention_backend) <= set(ATTENTION_KERNELS)
    assert 0 in loaded.supports.zero_stages
    assert set(loaded.supports.zero_stages) <= {0, 1, 2, 3}


@each("name", stack_names())
def test_a_stack_that_pipelines_can_run_more_than_one_stage_without_holding_everything(name):
    schedules = set(stack(name).supports.schedules) - {"none"}
    assert not schedules or "1f1b" in schedules


def test_an_unknown_stack_names_the_nearest():
    with pytest.raises(UnknownName, match="megatron-core"):
        stack("megatron-cor")


def test_names_are_forgiving_about_case_and_blanks():
    assert stack(" Megatron-Core ") is not None


def test_a_stack_can_be_read_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ntitle = "Mine"\nsource = "measured"\n[host]\nlaunch_time = "4 us"\n')
    assert stack(str(path)).host.launch_time == pytest.approx(4e-6)


@pytest.mark.parametrize(
    "line",
    [
        "host.launch_time = 4e-6",
        'allocator.reserved = "2 s"',
        "allocator.fragmentation = 0.9",
        "unheard_of = 1",
        "kernels.unheard_of = 1",
        "calibrated.straggler = -1.0",
    ],
)
def test_a_wrong_field_is_refused_by_file_and_name(tmp_path, line):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ntitle = "Mine"\nsource = "measured"\n{line}\n')
    with pytest.raises(BadFile, match=line.split(" ", maxsplit=1)[0]):
        stack(str(path))


def test_a_stack_is_frozen():
    with pytest.raises(ValidationError):
        stack("generic").allocator.fragmentation = 0.1


def test_a_stack_survives_its_own_document():
    for name in stack_names():
        assert Stack.model_validate_json(stack(name).model_dump_json()) == stack(name)


def test_experts_in_16_bits_run_as_they_did_before_the_operation_that_16_bits_do_not_have():
    assert stack("nemo-26.06").at("bf16").calibrated.expert_efficiency == stack("nemo").calibrated.expert_efficiency
    assert stack("nemo-26.06").at("mxfp8").calibrated.expert_efficiency > stack("nemo").calibrated.expert_efficiency


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("switches.attention_backend", ["flash3"], "there is no 'flash3'; did you mean flash-3?"),
        ("kernels.blackwell_attention", ["cudn"], "did you mean cudnn?"),
        ("switches.attention_backend", [], "at least 1 item"),
        ("supports.zero_stages", [7], "there is no '7'; there are 0, 1, 2, 3"),
        ("supports.zero_stages", [], "at least 1 item"),
        ("supports.schedules", ["1f1bb"], "did you mean 1f1b?"),
        ("supports.schedules", [], "at least 1 item"),
        ("supports.recompute_modules", ["mlpp"], "did you mean mlp?"),
        ("supports.offloads", ["optimizers"], "did you mean optimizer?"),
        ("supports.cp_kinds", [], "at least 1 item"),
        ("supports.rank_orders", [], "at least 1 item"),
        ("gradients.gradient_bytes", -4, "at least 0"),
        ("gradients.gradient_bytes", "4", "expected a whole number, got '4'"),
        ("calibrated.kernel_efficiency", True, "expected a number, got true"),
        ("kernels.recent_cudnn", 1, "expected true or false, got 1"),
        ("switches.expert_capacity", "2", "expected a number, got '2'"),
    ],
)
def test_a_stack_file_with_a_word_that_means_nothing_is_refused_by_its_field(tmp_path, field, value, said):
    path = tmp_path / "mine.json"
    group, _, name = field.partition(".")
    path.write_text(json.dumps(MINE | {group: {name: value}}))
    with pytest.raises(BadFile, match=re.escape(said)) as caught:
        stack(str(path))
    assert f"{field}: " in str(caught.value)


@each("name", stack_names())
def test_a_stack_written_in_short_reads_as_the_same_stack(name):
    written = json.loads(json.dumps(stack(name).model_dump(mode="json", exclude_defaults=True)))
    assert Stack.model_validate(written) == stack(name)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ({"gather_pool": True}, "gather_pool is now sharding.gather_pool"),
        ({"launch": "4 us"}, "launch is now host.launch_time"),
        ({"overlap": {"gradients": True}}, "overlap.gradients is now switches.overlap_grad_reduce"),
        ({"slack": 0.1, "loss": "plain", "keeps": [], "apart": []}, "and 1 more"),
    ],
)
def test_a_stack_file_from_before_fields_were_grouped_is_refused_with_their_names(tmp_path, old, said):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MINE | old))
    with pytest.raises(BadFile, match=re.escape(said)):
        stack(str(path))


def test_every_old_name_leads_to_a_field_and_none_is_a_field_again():
    assert set(RENAMED.values()) <= PATHS
    assert not set(RENAMED) & (PATHS | set(Stack.model_fields))


def test_changes_of_a_stack_lead_to_fields_that_are_there():
    changed = stack("generic").changed({"overlap.pp": 0.5, "switches.dispatcher": "deepep", "name": "mine"})
    assert (changed.overlap.pp, changed.switches.dispatcher, changed.name) == (0.5, "deepep", "mine")
    assert changed.changed({"overlap.pp": stack("generic").overlap.pp}) != stack("generic")
    with pytest.raises(KeyError, match=r"overlap\.pq"):
        stack("generic").changed({"overlap.pq": 0.5})
