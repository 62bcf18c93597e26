"""When a run was made, and what its framework did at the time."""

import pytest

from costmodels.stack.stack import stack
from hardware.catalogue import accelerator
from planner.runs.words.dated import month
from planner.runs.words.flat_fields import changed
from planner.runs.words.pytorch import attended, cast, compiled, repeated, stepped


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
        ("gpu-recipes (August 2026), training/a4/llama3-1-70b/maxtext-pretraining-gke README log", "b200", "2025-03"),
        ("gpu-recipes (August 2026), training/a3ultra/mixtral_8x7b/nemo-gke README log", "h200-sxm", "2026-06"),
        ("a report", "b200", None),
        ("measured 2024, GPT-3 shape of 2020-05", "h100-sxm", "2024-06"),
        ("the model of 2020, rerun on 2024-03-12", "h100-sxm", "2024-03"),
    ],
)
def test_a_source_says_the_month_of_its_runs_or_none(source, accelerator, when):
    assert month(row(source, accelerator)) == when


@pytest.mark.parametrize(
    ("at", "passes", "root", "exchanges"),
    [
        ("202412", True, True, False),
        ("202503", False, True, False),
        ("202508", False, False, False),
        ("202509", False, False, True),
    ],
)
def test_torchtitan_is_priced_as_it_was_at_the_time(at, passes, root, exchanges):
    changes = stepped(row(f"benchmarks/llama3_h100_{at}"), stack("torchtitan"))
    found = ("optimizer_traffic" in changes, changes["root_unit"], changes["saves_exchanges"])
    assert (found, changes["saves_cudnn"]) == ((passes, root, exchanges), False)
    assert stepped(row("benchmarks/llama3_202512"), stack("torchtitan"))["saves_cudnn"]


@pytest.mark.parametrize("name", ["torchtitan", "fsdp"])
@pytest.mark.parametrize("words", ["bf16, AdamW fused", "adamw_torch_fused", "AdamW(lr, fused=True)", "fused AdamW"])
def test_a_step_that_a_run_calls_fused_is_one_pass_at_any_date(name, words):
    said = row("a log of 2024-08") | {"stack": {"framework": "LitGPT (PyTorch FSDP2)", "notes": words}}
    assert stepped(said, stack(name))["optimizer_traffic"] == stack("megatron-core").states.optimizer_traffic
    assert not stepped(said | {"stack": {"notes": "no fused AdamW"}}, stack("fsdp"))


@pytest.mark.parametrize(
    ("precision", "gathers", "notes", "kept"),
    [
        ("fp8", False, "", True),
        ("fp8", False, "force_recompute_fp8_weight_in_bwd", False),
        ("fp8", True, "", False),
        ("bf16", False, "", False),
    ],
)
def test_compiled_8_bit_weights_stay_until_the_backward_pass_unless_denied_or_gathered(precision, gathers, notes, kept):
    chosen = stack("torchtitan").changed({"switches.fp8_param_gather": gathers})
    said = {"stack": {"framework": "torchtitan", "notes": notes}, "strategy": {"precision": precision}}
    assert ("casts" in cast(said, chosen).get("keeps", ())) == kept


@pytest.mark.parametrize(
    ("framework", "notes", "moved"),
    [
        ("PyTorch (plain script)", "autocast", 92),
        ("PyTorch (plain script)", "pure bf16", 46 + 8),
        ("PyTorch (plain script)", "fused AdamW", None),
        ("PyTorch (plain script), torch.compile", "", None),
        ("a framework of its own", "", None),
    ],
)
def test_a_plain_script_steps_with_an_operation_a_kernel(framework, notes, moved):
    said = row("a log of 2026-01") | {"stack": {"framework": framework, "notes": notes}, "strategy": {}}
    assert stepped(said, stack("generic")).get("optimizer_traffic") == moved


@pytest.mark.parametrize(
    ("source", "notes", "lean"),
    [
        ("mosaicml/llm-foundry README.md", "FSDP mixed-precision mode PURE", False),
        ("mosaicml/llm-foundry README.md, H100 tables (October 2023)", "FSDP mixed-precision mode DEFAULT", True),
        ("mosaicml/examples README.md (early 2023 version)", "FSDP mixed-precision mode PURE", False),
        ("foundation-model-stack/fms-fsdp README (2024-02a)", "", True),
    ],
)
def test_checkpoints_end_early_since_pytorch_2_1(source, notes, lean):
    said = row(source) | {"stack": {"framework": "PyTorch FSDP", "notes": notes}}
    assert repeated(said, stack("fsdp")) == {"lean_recompute": lean}


@pytest.mark.parametrize(
    ("when", "said", "kernel"),
    [("2024-06", True, "flash-2"), ("2026-04", True, None), ("", None, "flash-2"), ("2024-06", "v3", None)],
)
def test_plain_pytorch_prefers_cudnn_on_hopper_since_2_9(when, said, kernel):
    stated = row(f"a report {when}") | {"stack": {"framework": "PyTorch FSDP", "attention": said}}
    chosen = stack("fsdp")
    assert chosen.switches.attention_backend[0] == "cudnn"
    assert next(iter(attended(stated, chosen).get("attention", ())), None) == kernel
    assert attended(stated, stack("torchtitan")) == {}


def test_torchtitan_has_eager_checkpoints_run_to_their_end_since_august_2025():
    chosen = stack("torchtitan")
    eager = chosen.changed({"switches.fused_elementwise": False})
    cases = [(eager, "202509", False), (eager, "202412", True), (chosen, "202509", True)]
    for each, when, lean in cases:
        assert repeated(row(f"benchmarks/llama3_{when}"), each) == {"lean_recompute": lean}
    assert repeated(row("a report"), chosen) == {}
    assert repeated(row("202301"), stack("maxtext")) == {}


def test_a_run_of_no_known_month_and_another_framework_keep_what_their_stack_says():
    assert stepped(row("a report"), stack("torchtitan")) == {}
    assert stepped(row("202412"), stack("fsdp")) == {}


@pytest.mark.parametrize(("framework", "passes"), [("torchtitan", 5.0), ("torchtune", 1.0)])
def test_torchtitan_rotates_complex_numbers_that_no_compiler_fuses_and_its_kin_real_ones(framework, passes):
    said = {"stack": {"framework": framework, "overlap": "torch.compile"}, "strategy": {}}
    chosen = stack("torchtitan")
    assert changed(chosen, compiled(said, chosen)).kernels.rotary_traffic == passes


@pytest.mark.parametrize(("name", "kernel"), [("torchtitan", "aotriton"), ("megatron-core", "flash-2")])
def test_pytorch_s_own_attention_runs_on_amd_at_half_the_rate_of_the_vendor_s_and_less_backward(name, kernel):
    known = accelerator("mi300x").kernels.attention
    assert next(each for each in stack(name).switches.attention_backend if each in known) == kernel
    own, vendor = known["aotriton"], known["flash-2"]
    assert own.efficiency == pytest.approx(0.5 * vendor.efficiency, rel=0.05)
    rates = [fit.efficiency * fit.backward_efficiency_ratio for fit in (own, vendor)]
    assert rates[0] == pytest.approx(0.3 * rates[1], rel=0.05)
