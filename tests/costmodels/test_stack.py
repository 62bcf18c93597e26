import pytest
from pydantic import ValidationError

from costmodels.schedules import SCHEDULES
from costmodels.stack import Stack, stack, stack_names
from hardware.errors import BadFile, UnknownName
from hardware.kernels import _NEAREST_ATTENTION

ATTENTION = {"unfused", *_NEAREST_ATTENTION}


@pytest.mark.parametrize("name", stack_names())
def test_every_stack_loads_under_its_own_name_and_knows_what_it_names(name):
    loaded = stack(name)
    assert loaded.name == name
    assert loaded.title
    assert loaded.source
    assert set(loaded.schedules) <= set(SCHEDULES)
    assert "none" in loaded.schedules
    assert set(loaded.attention) <= ATTENTION
    assert 0 in loaded.zero_stages
    assert set(loaded.zero_stages) <= {0, 1, 2, 3}


@pytest.mark.parametrize("name", stack_names())
def test_a_stack_that_pipelines_can_run_more_than_one_stage_without_holding_everything(name):
    schedules = set(stack(name).schedules) - {"none"}
    assert not schedules or "1f1b" in schedules


def test_an_unknown_stack_names_the_nearest():
    with pytest.raises(UnknownName, match="megatron-core"):
        stack("megatron-cor")


def test_names_are_forgiving_about_case_and_blanks():
    assert stack(" Megatron-Core ") is not None


def test_a_stack_can_be_read_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ntitle = "Mine"\nsource = "measured"\nlaunch = "4 us"\n')
    assert stack(str(path)).launch == pytest.approx(4e-6)


@pytest.mark.parametrize(
    "line", ["launch = 4e-6", 'reserved = "2 s"', "slack = 0.9", "unheard_of = 1", "straggler = -1.0"]
)
def test_a_wrong_field_is_refused_by_file_and_name(tmp_path, line):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ntitle = "Mine"\nsource = "measured"\n{line}\n')
    with pytest.raises(BadFile, match=line.split(" ", maxsplit=1)[0]):
        stack(str(path))


def test_a_stack_is_frozen():
    with pytest.raises(ValidationError):
        stack("generic").slack = 0.1


def test_a_stack_survives_its_own_document():
    for name in stack_names():
        assert Stack.model_validate_json(stack(name).model_dump_json()) == stack(name)


def test_experts_in_16_bits_run_as_they_did_before_the_operation_that_16_bits_do_not_have():
    assert stack("nemo-26.06").at("bf16").expert_efficiency == stack("nemo").expert_efficiency
    assert stack("nemo-26.06").at("mxfp8").expert_efficiency > stack("nemo").expert_efficiency
