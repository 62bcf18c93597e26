"""What the files of single targets say of the choices that were priced, word by word."""

import re
import tomllib

import pytest
import yaml

from costmodels.model.catalogue import model as find_model
from planner.jobs.preview import launch
from planner.jobs.registry import export
from tests.each import each
from tests.planner.jobs.test_export_choices import SPARSE, planned


def file_of(plan, target, version=None):
    return next(iter(export(plan, target, version=version).files.values()))


def overrides(plan):
    words = export(plan, "megatron-bridge").program[1:]
    return dict(word.split("=", 1) for word in words)


def arguments(plan):
    return " ".join(export(plan, "megatron-lm").program)


@pytest.mark.parametrize(
    ("precision", "table", "recipe"),
    [("fp8-rowwise", "float8", "rowwise"), ("fp8-current", "float8", "tensorwise"), ("mxfp8", "mx", "mxfp8_cublas")],
)
def test_torchtitan_s_toml_converts_the_products(precision, table, recipe):
    plan = planned("torchtitan", {"precision": precision})
    document = tomllib.loads(file_of(plan, "torchtitan", "0.2"))
    assert document["model"]["converters"] == [f"quantize.linear.{table}"]
    assert document["quantize"]["linear"][table]["recipe_name"] == recipe
    plain = tomllib.loads(file_of(planned("torchtitan", {}), "torchtitan", "0.2"))
    assert "converters" not in plain["model"]


def test_torchtitan_s_toml_converts_the_products_of_experts_too():
    plan = planned("torchtitan", {"model": SPARSE, "precision": "mxfp8"})
    document = tomllib.loads(file_of(plan, "torchtitan", "0.2"))
    assert document["model"]["converters"] == ["quantize.linear.mx", "quantize.grouped_mm.mx"]
    assert document["quantize"]["grouped_mm"]["mx"] == {"recipe_name": "mxfp8", "fqns": ["experts"]}


@pytest.mark.parametrize("version", ["0.3", "0.2"])
@pytest.mark.parametrize("precision", ["fp16", "fp8", "fp8-block", "int8"])
def test_torchtitan_is_refused_what_it_would_train_in_bf16(precision, version):
    with pytest.raises(ValueError, match=f"no precision {precision}"):
        export(planned("torchtitan", {"precision": precision}), "torchtitan", version=version)


@pytest.mark.parametrize(
    ("precision", "backend"), [("fp8", "TE"), ("fp8-current", "AO"), ("fp8-rowwise", "AO"), ("bf16", None)]
)
def test_accelerate_is_told_what_multiplies_in_8_bits(precision, backend):
    made = export(planned("accelerate", {"precision": precision}), "accelerate")
    document = yaml.safe_load(made.files["accelerate.yaml"])
    assert document.get("fp8_config", {}).get("backend") == backend
    assert document["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] == (backend != "AO")
    assert any("from_recipe_name" in remark for remark in made.remarks) == (precision == "fp8-rowwise")


def test_accelerate_s_file_reaches_a_script_that_another_launcher_starts():
    text = export(planned("accelerate", {"tp": 2}), "slurm").files["job.sbatch"]
    told = dict(re.findall(r"^export (\w+)=(.*)$", text, flags=re.MULTILINE))
    assert (told["ACCELERATE_USE_FSDP"], told["FSDP_VERSION"], told["FSDP_RESHARD_AFTER_FORWARD"]) == (
        "true",
        "2",
        "true",
    )
    assert (told["PARALLELISM_CONFIG_TP_SIZE"], told["PARALLELISM_CONFIG_DP_SHARD_SIZE"]) == ("2", "8")


@pytest.mark.parametrize("launcher", ["slurm", "torchrun", "jobset", "ray", "skypilot", "volcano"])
@pytest.mark.parametrize(
    ("framework", "changes", "files"),
    [
        ("pytorch", {}, {"torch_plan.py"}),
        ("deepspeed", {"pp": 2, "schedule": "1f1b"}, {"ds_config.json", "ds_pipeline.py"}),
        ("torchtitan", {}, {"meshwright_plan.py"}),
        ("megatron-lm", {}, set()),
    ],
)
def test_a_launcher_s_files_are_all_that_its_program_reads(launcher, framework, changes, files):
    made = export(planned(framework, changes), launcher).files
    assert set(list(made)[1:]) == files


def test_megatron_bridge_is_told_of_optimizer_and_offloading():
    host = {"offload": "optimizer", "offload_fraction": 0.5}
    given = overrides(planned("megatron-bridge", host))
    assert (given["optimizer.optimizer_cpu_offload"], given["optimizer.optimizer_offload_fraction"]) == ("true", "0.5")
    assert given["optimizer.use_precision_aware_optimizer"] == "true"
    assert overrides(planned("megatron-bridge", {"optimizer": "sgd"}))["optimizer.optimizer"] == "sgd"
    assert overrides(planned("megatron-bridge", {"main_params": "fp16"}))["optimizer.main_params_dtype"] == "fp16"
    narrow = overrides(planned("megatron-bridge", {"optimizer": "adam-bf16"}))
    assert narrow["optimizer.exp_avg_dtype"] == narrow["optimizer.exp_avg_sq_dtype"] == "bf16"
    moved = overrides(planned("megatron-bridge", {"offload": "activations"}))
    assert moved["model.fine_grained_activation_offloading"] == "true"
    assert "core_attn" in moved["model.offload_modules"]
    assert not any(name.startswith("optimizer.") for name in overrides(planned("megatron-bridge", {})))


@pytest.mark.parametrize("catalogue", ["llama3-8b", SPARSE])
def test_megatron_bridge_is_said_to_have_no_recipe_of_a_model_of_ones_own_and_what_sizes_it_has(catalogue):
    (usual, *_) = export(planned("megatron-bridge", {"model": catalogue}), "megatron-bridge").remarks
    assert usual == "the recipe brings model and data; give its dataset the same sequence length"
    mine = find_model(catalogue).model_copy(update={"name": "mine", "hidden_size": 4608})
    own = export(planned("megatron-bridge", {"model": mine}), "megatron-bridge")
    assert own.remarks[0].startswith("no recipe brings mine, which the catalogue does not hold: take one of")
    assert "model.num_layers=32 model.hidden_size=4608 model.ffn_hidden_size=14336" in own.remarks[0]
    assert ("model.num_moe_experts=8" in own.remarks[0]) == (catalogue == SPARSE)
    assert usual not in own.remarks
    assert own.remarks[0].split(",")[0] in next(iter(own.files.values()))


def test_megatron_bridge_s_16_bit_recipe_has_the_name_that_it_registers():
    assert overrides(planned("megatron-bridge", {"precision": "fp16"}))["mixed_precision"] == "fp16_mixed"


def test_megatron_bridge_is_told_of_the_dispatcher_and_the_capacity_that_were_priced():
    given = overrides(planned("megatron-bridge", {"model": SPARSE, "ep": 2, "expert_capacity": 1.5}))
    wanted = {"token_dispatcher_type": "flex", "expert_capacity_factor": "1.5", "pad_expert_input_to_capacity": "true"}
    assert {name: given[f"model.moe_{name}"] for name in wanted} == wanted


@pytest.mark.parametrize("target", ["megatron-lm", "megatron-bridge"])
def test_muon_shares_its_states_out_itself(target):
    plan = planned(target, {"optimizer": "muon"})
    text = file_of(plan, target)
    assert "dist_muon" in text
    assert "distributed-optimizer" not in text
    assert "distributed_optimizer" not in text
    for changes in ({"zero_stage": 0}, {"sharding_degree": 4}):
        with pytest.raises(ValueError, match="no optimizer muon under ZeRO stage"):
            export(planned(target, {"optimizer": "muon"} | changes), target)


def test_narrow_states_are_refused_where_nothing_shards_them():
    for choice in ({"main_params": "fp16"}, {"optimizer": "adam-bf16"}, {"offload": "optimizer"}):
        assert "--use-precision-aware-optimizer" in arguments(planned("megatron-lm", choice))
        with pytest.raises(ValueError, match="a sharded Adam alone"):
            export(planned("megatron-lm", choice | {"zero_stage": 0}), "megatron-lm")


@each(
    ("asked", "words"),
    [
        ({"main_grads": "bf16"}, {"--grad-reduce-in-bf16"}),
        ({"main_grads": "bf16", "precision": "fp16"}, set()),
        ({"main_grads": "fp32", "precision": "fp16"}, {"--accumulate-allreduce-grads-in-fp32"}),
        ({"stack": "nemo"}, {"--grad-reduce-in-bf16"}),
        ({"stack": "nemo", "main_grads": "fp32"}, set()),
        ({}, set()),
    ],
)
def test_megatron_adds_gradients_up_in_the_format_that_was_priced(asked, words):
    known = {"--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"}
    assert known & set(arguments(planned("megatron-lm", asked)).split()) == words


def test_megatron_is_not_asked_for_gradients_in_bf16_of_products_in_fp32():
    with pytest.raises(ValueError, match="adds the gradients of fp32 up in fp32; --main-grads fp32 prices that"):
        export(planned("megatron-lm", {"main_grads": "bf16", "precision": "fp32"}), "megatron-lm")


@pytest.mark.parametrize(
    ("precision", "option"), [("fp8-current", "--fp8-param-gather"), ("nvfp4", "--fp4-param-gather"), ("bf16", "")]
)
def test_megatron_keeps_weights_in_the_format_that_the_stack_was_priced_with(precision, option):
    words = set(arguments(planned("megatron-lm", {"stack": "nemo", "precision": precision})).split())
    assert {"--fp8-param-gather", "--fp4-param-gather"} & words == ({option} if option else set())
    whole = export(planned("megatron-lm", {"stack": "nemo", "precision": precision, "zero_stage": 0}), "megatron-lm")
    assert not {"--fp8-param-gather", "--fp4-param-gather"} & set(whole.program)
    assert any("stay in 16 bits" in remark for remark in whole.remarks) == bool(option)


@pytest.mark.parametrize(("target", "written"), [
    ("megatron-lm", "--attention-dropout 0.0 --hidden-dropout 0.0"),
    ("megatron-bridge", "model.attention_dropout=0.0 model.hidden_dropout=0.0"),
])  # fmt: skip
def test_a_tenth_is_dropped_only_where_that_was_priced(target, written):
    assert written in " ".join(export(planned(target, {}), target).program)
    dropping = planned(target, {"changes": {"stack.dropout": True}})
    assert "dropout" not in " ".join(export(dropping, target).program)


@each(
    ("name", "value", "with_it", "targets"),
    [
        ("optimizer", "sgd", {}, ("megatron-lm", "megatron-bridge", "deepspeed", "nanotron", "maxtext")),
        ("main_params", "fp16", {}, ("megatron-lm", "megatron-bridge")),
        ("expert_capacity", 1.5, {"model": SPARSE}, ("megatron-lm", "megatron-bridge")),
        ("offload_fraction", 0.5, {"offload": "optimizer"}, ("megatron-lm", "megatron-bridge")),
        ("offload_fraction", 0.5, {"offload": "optimizer", "zero_stage": 3}, ("deepspeed",)),
        ("fp8_param_gather", True, {"precision": "fp8"}, ("megatron-lm",)),
    ],
)
def test_a_changed_field_of_the_stack_is_told_like_a_choice_that_was_asked_for(name, value, with_it, targets):
    for target in targets:
        asked = export(planned(target, with_it | {name: value}), target)
        changed = export(planned(target, with_it | {"changes": {f"stack.{name}": value}}), target)
        assert (changed.program, changed.files) == (asked.program, asked.files), target
        assert not any(f"stack.{name}" in remark for remark in changed.remarks), target


def test_what_a_target_leaves_out_is_named_with_its_value():
    plan = planned("deepspeed", {"main_grads": "fp32", "main_params": "fp16", "loss_block": 512})
    left = "main_grads fp32, main_params fp16, loss_block 512 tokens"
    said = f"priced with {left}, which these files for deepspeed cannot express"
    assert export(plan, "deepspeed").remarks[-1] == said
    assert export(plan, "slurm").remarks[-1] == said
    assert not any("priced with" in remark for remark in export(planned("deepspeed", {}), "deepspeed").remarks)


def test_torchtitan_s_arguments_name_what_they_leave_out():
    plan = planned("torchtitan", {"main_params": "fp16"})
    said = "priced with main_params fp16, which these arguments for torchtitan cannot express"
    assert launch(plan, plan.strategy).remarks[-1] == said
    plain = planned("torchtitan", {})
    assert not any("priced with" in remark for remark in launch(plain, plain.strategy).remarks)
