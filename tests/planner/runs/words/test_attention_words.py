"""What a measured run's words on its attention mean, and which kernels its release had."""

import pytest

from planner.runs.words.attention_words import assumed, attention_changes, kernel_named
from planner.runs.words.mapping import case
from tests.planner.measured_run import run

LATENT = {"q_lora": 1536, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v": 128}


def said(source="NVIDIA dgxc-benchmarking v25.05", framework="NeMo 2.0", accelerator="gb200", mla=LATENT, notes=None):
    return attention_changes(
        {
            "source": source,
            "notes": notes,
            "cluster": {"accelerator": accelerator},
            "stack": {"framework": framework},
            "model": {"mla": mla},
        }
    )


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"accelerator": "b200", "source": "NVIDIA dgxc-benchmarking v25.07"},
        {"source": "NVIDIA performance summary", "framework": "NeMo 25.04"},
    ],
)
def test_latent_attention_was_not_fused_on_blackwell_before_its_backward_pass_was_written(row):
    assert said(**row) == {"attention": ("unfused",)}


@pytest.mark.parametrize(
    "row",
    [
        {"accelerator": "h100-sxm"},
        {"source": "NVIDIA dgxc-benchmarking v25.08"},
        {"framework": "NeMo 25.07", "source": "NVIDIA performance summary"},
        {"framework": "Megatron-LM, Transformer Engine 2.1", "source": "a paper of 2025"},
        {"mla": None},
        {"mla": {**LATENT, "qk_nope": 64, "v": 64}},
    ],
)
def test_other_devices_later_releases_and_narrower_heads_keep_the_stack_s_kernels(row):
    assert said(**row) == {}


@pytest.mark.parametrize(
    ("device", "framework", "shape", "block"),
    [
        ("tpu-v5p", "Levanter (JAX)", {"head_dim": 64}, 1024),
        ("tpu-v5e", "Levanter (JAX)", {"hidden_size": 768, "num_heads": 12}, 1024),
        ("tpu-v5p", "Levanter (JAX)", {"head_dim": 128}, None),
        ("h100-sxm", "Levanter (JAX)", {"head_dim": 64}, None),
        ("tpu-v5p", "MaxText (JAX)", {"head_dim": 64}, None),
    ],
)
def test_levanter_attends_in_blocks_where_heads_are_too_narrow_for_the_kernel_of_tpus(device, framework, shape, block):
    row = {"cluster": {"accelerator": device}, "stack": {"framework": framework}, "model": shape}
    assert attention_changes(row) == ({"attention": ("unfused",), "attention_block": block} if block else {})


@pytest.mark.parametrize(
    ("source", "switched"),
    [
        ("NVIDIA dgxc-benchmarking v24.11.1, gpt3-175b recipe README", True),
        ("NVIDIA dgxc-benchmarking v24.11.1, nemotron4-340b recipe README", True),
        ("NVIDIA dgxc-benchmarking v24.11.1, nemotron4-15b recipe README", False),
        ("NVIDIA dgxc-benchmarking v24.11.1, paxml-gpt3-175b recipe README", False),
        ("NVIDIA dgxc-benchmarking v25.02, gpt3-175b recipe README", False),
        ("NVIDIA dgxc-benchmarking v25.02.01, nemotron4-340b recipe README", True),
        ("NVIDIA dgxc-benchmarking v25.04, grok1 recipe README", True),
        ("NVIDIA dgxc-benchmarking v25.04, nemotron4-340b recipe README", False),
    ],
)
def test_launch_scripts_that_switch_cudnn_s_attention_off_leave_flash_attention_2(source, switched):
    expected = {"attention": ("flash-2",)} if switched else {}
    assert said(source=source, accelerator="h100-sxm", mla=None) == expected


@pytest.mark.parametrize(
    ("source", "framework", "switched"),
    [
        ("NVIDIA/NeMo docs/source/performance/performance_summary.md, 2024-09 revision", "NeMo 24.07", True),
        ("NVIDIA/NeMo docs long-context table (container 24.03.01)", "NeMo 24.03.01", True),
        ("NVIDIA/NeMo docs/source/performance/performance_summary.md", "NeMo 24.12", False),
        ("AI-Hypercomputer/gpu-recipes, training/a3ultra/llama3_70b/nemo-gke", "NeMo 24.07", False),
        ("kwai/Megatron-Kwai examples/atc24 README", "Megatron-Kwai (Megatron-LM January 2024)", True),
        ("FlagOpen/FlagPerf training/nvidia/llama3_70B-megatron README", "megatron-core core_v0.6.0", True),
        ("NVIDIA/Megatron-LM README", "Megatron-Core r0.8.0", False),
    ],
)
def test_sources_that_switch_cudnn_s_attention_off_or_never_call_it(source, framework, switched):
    expected = {"attention": ("flash-2",)} if switched else {}
    assert said(source=source, framework=framework, accelerator="h100-sxm", mla=None) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("MLPerf Training v3.0 results repo, NVIDIA/results/dgxh100_n64_nemo/gpt3 logs", {"attention": ("flash-1",)}),
        ("MLPerf Training v3.1 results repo, NVIDIA/results/eos_n64_ngc23.09_nemo/gpt3", {"attention": ("flash-2",)}),
        ("MLPerf Training v4.0 results repo, NVIDIA/results/eos_n64_ngc24.04_nemo/gpt3", {}),
        ("MLPerf Training v3.0 results repo, Intel-HabanaLabs/results/HLS-Gaudi2-N32-PT/gpt3", {}),
    ],
)
def test_rounds_of_mlperf_ran_the_attention_of_their_time(source, expected):
    assert said(source=source, accelerator="h100-sxm", mla=None) == expected


@pytest.mark.parametrize(
    ("accelerator", "changes"),
    [("gb200", {"attention": ("flash-2",)}), ("a100-sxm-80gb", {"attention": ("flash-2",)}), ("h100-sxm", {})],
)
def test_a_run_that_repeats_itself_to_the_bit_has_cudnn_s_attention_on_hopper_alone(accelerator, changes):
    words = {"framework": "Megatron-Core", "source": "a test", "mla": None, "notes": "deterministic mode; one node"}
    assert said(accelerator=accelerator, **words) == {"deterministic": True} | changes


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ("FlashAttention xformers TE|SDPA (flash)|triton|Transformer Engine|memory-efficient|on", True),
        ("flash_attn 2.5.6|FlashAttention-2|Flash Attention (v2)|fa2|2|2.0", "v2"),
        ("1|FlashAttention v1|flash1", "v1"),
        ("cuDNN fused|TE (cuDNN)", "cudnn"),
        ("no|off|naive|vanilla|standard attention|math|SDPA (math)|flash attention: off|without flash|unfused", False),
        ("fused softmax|Megatron fused scaled masked softmax|not fused|0|None", False),
        ("unknown|not stated|n/a|default|GQA", None),
    ],
)
def test_words_on_attention_name_a_release_a_kernel_or_none(words, kernel):
    assert [kernel_named(word) for word in words.split("|")] == [kernel] * len(words.split("|"))


def test_the_number_of_a_release_of_flash_attention_need_not_be_a_word():
    assert [kernel_named(number) for number in (0, 1, 2, 3)] == [False, "v1", "v2", "v3"]


def test_a_word_that_denies_no_kernel_names_some_kernel_and_the_row_says_so():
    assert (kernel_named("ring-a-ding"), assumed("ring-a-ding")) == (True, True)
    assert not assumed("xformers")
    mapped = case(run(stack={"framework": "Megatron-LM", "attention": "ring-a-ding"}))
    assert mapped.scenario.stack.name == "megatron-core"
    assert "attention 'ring-a-ding' names no kernel that is known; one that is fused assumed" in mapped.notes


@pytest.mark.parametrize(
    ("said", "stack"), [("xformers", "megatron-core"), (1, "megatron-core"), (0, "megatron-lm-2022")]
)
def test_a_framework_is_dated_by_what_its_words_on_attention_mean(said, stack):
    assert case(run(stack={"framework": "Megatron-LM", "attention": said})).scenario.stack.name == stack
