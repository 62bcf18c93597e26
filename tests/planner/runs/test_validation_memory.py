"""Memory of measured runs: what is read from their words, and how near the shipped ones come out."""

import statistics

import pytest

from costmodels.stack.stack import stack
from costmodels.strategy import Recompute
from planner.runs.judge import judge_row, memory_kind, shipped, stage_read
from planner.runs.rows import read_rows
from planner.runs.words import frameworks, redistributed
from planner.runs.words.mapping import case
from planner.runs.words.pytorch import segments
from planner.runs.words.saving import recomputed_layers
from tests.planner.measured_run import only, run


def errors(group):
    """Signed errors of every scored allocator peak of a group."""
    rows = [row for path in shipped() for row in read_rows(path) if row["group"] == group]
    found = [v for row in rows for v in judge_row(row) if v.metric == "memory" and v.scored and v.error is not None]
    return [v.error for v in found]


def test_allocator_peaks_of_megatron_core_on_b200_come_out_within_one_percent():
    found = errors("simumax-b200")
    assert len(found) == 24
    assert max(map(abs, found)) < 0.01


@pytest.mark.parametrize("group", ["vocab-parallel-1f1b", "simumax-a100pcie", "zero-bubble"])
def test_allocator_peaks_of_pipelines_come_out_within_four_percent(group):
    assert statistics.median(map(abs, errors(group))) < 0.04


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("max_memory_allocated; real use is 2-3 GB higher", (2.0**30, "allocated")),
        ("peak GiB, max_memory_reserved", (2.0**30, "cached")),
        ("as plotted (reserved or allocated not stated), GB", (2.0**30, "cached")),
        ("whole GB as printed (GB or GiB not stated)", (1e9, "allocated")),
        ("largest total GPU memory over ranks", (1e9, "shown")),
        ("NVML, GB", (2.0**30, "shown")),
        ("nvtop", (2.0**30, "shown")),
        ("DeepSpeed see_memory_usage, Max MA", (2.0**30, "allocated")),
        ("Max_CA, GB", (2.0**30, "cached")),
        ("max calibrated, GB", (1e9, "allocated")),
        ("dcgm peak", (2.0**30, "shown")),
        ("MiB, nvidia-smi", (2.0**20, "shown")),
        ("MB, max allocated", (2.0**20, "allocated")),
        ("GiB (converted from MiB)", (2.0**30, "allocated")),
        ("95th percentile, GiB", (2.0**30, "allocated")),
    ],
)
def test_words_on_a_memory_figure_say_what_it_is(words, kind):
    assert memory_kind({"measured": {"memory": 1.0, "memory_kind": words}}) == kind


def test_a_percentage_is_a_share_of_the_device_s_memory_as_its_driver_shows_it():
    row = run(cluster={"memory_gb": 80}, measured={"memory": 50.0, "memory_kind": "percent, DCGM"})
    verdict = only(judge_row(row), "memory")
    assert memory_kind(row) == (0.8 * 2.0**30, "shown")
    assert verdict.measured == 40.0 * 2.0**30
    assert "memory is a share of the device's 80 GiB" in verdict.notes


def test_a_percentage_of_a_device_of_unknown_size_is_not_read_and_the_row_says_so():
    verdicts = judge_row(run(measured={"memory": 50.0, "memory_kind": "%"}))
    assert "memory" not in {verdict.metric for verdict in verdicts}
    assert any("memory_gb is not stated" in note for note in verdicts[0].notes)


def test_a_figure_in_mib_is_read_as_such_and_the_row_says_so():
    verdict = only(judge_row(run(measured={"memory": 21000.0, "memory_kind": "MiB, nvidia-smi"})), "memory")
    assert verdict.measured == 21000.0 * 2.0**20
    assert "memory read in MiB" in verdict.notes


def test_days_of_a_whole_training_are_no_time_per_iteration_and_the_row_says_why():
    said = {"iteration_time_s": None, "training_days": 21.0}
    assert [verdict.reason for verdict in judge_row(run(measured=said))] == [
        "nothing measured but the days of a whole training, which hold its stops"
    ]


def test_the_logs_of_one_artifact_are_read_for_what_was_reserved():
    words = {"measured": {"memory": 1.0, "memory_kind": "torch peak allocated (source GiB, converted to GB)"}}
    assert memory_kind(words) == (1e9, "allocated")
    said = "sail-sg/VocabularyParallelism artifact/example-results/full-exp.txt"
    assert memory_kind(words | {"source": said}) == (1e9, "cached")


def test_layers_moved_off_the_last_stage_go_to_the_latest_of_the_others():
    assert redistributed.stage_layers(48, 16, 2) == [3] * 14 + [4, 2]
    assert redistributed.stage_layers(32, 8, 0) == [4] * 3 + [5] * 4 + [0]


def test_layers_moved_off_the_last_stage_leave_the_first_ones_peak():
    notes = "transformer layers redistributed to balance the vocabulary layers"
    plan = {"gpus": 4, "tp": 1, "pp": 4, "dp": 1, "zero_stage": 0, "schedule": "1f1b", "sequence_parallel": False}
    model = {"num_layers": 16, "vocab_size": 512_000}
    framework = {"framework": "Megatron-LM fork (sail-sg)", "notes": notes}
    held = list(case(run(stack=framework, strategy=plan, model=model)).assignment.layers)
    assert sum(held) == 16
    assert held == sorted(held[:3]) + held[3:]
    assert held[3] < 4


def test_kempnerforge_counts_in_gib():
    row = {
        "stack": {"framework": "KempnerForge (PyTorch FSDP2/DTensor)"},
        "measured": {"memory_kind": "peak GB per GPU"},
    }
    assert memory_kind(row) == (2.0**30, "allocated")


@pytest.mark.parametrize(
    ("framework", "kind", "stages"),
    [
        ("nanotron v0.5", "GB", [0]),
        ("KempnerForge (PyTorch FSDP2/DTensor)", "peak GB per GPU", [0]),
        ("Megatron-Bridge", "rank-0 peak allocated (62.166 GiB)", [0]),
        ("torchtitan", "peak GiB, max over ranks", [0, 1, 2, 3]),
    ],
)
def test_rank_zero_reports_the_first_stage(framework, kind, stages):
    row = {"stack": {"framework": framework}, "measured": {"memory_kind": kind}}
    assert list(range(4))[stage_read(row)] == stages


def test_a_pipeline_of_kempnerforge_splits_neither_sequences_nor_the_vocabulary():
    words = {"framework": "KempnerForge (PyTorch FSDP2/DTensor)"}
    shape = run()["strategy"] | {"gpus": 8, "dp": 2, "tp": 2, "sequence_parallel": True, "zero_stage": 3}
    alone, piped = (case(run(stack=words, strategy=shape | {"pp": pp, "gpus": 4 * pp})) for pp in (1, 2))
    assert alone.rows.sequence_parallel[0] == 1
    assert piped.rows.sequence_parallel[0] == 0
    assert alone.scenario.stack.exchange.whole_vocabulary == ("embedding",)
    assert piped.scenario.stack.exchange.whole_vocabulary == ("embedding", "head")


def test_notes_that_count_embedding_and_head_say_the_layers_of_every_stage():
    words = {"framework": "Megatron-DeepSpeed (Sailor fork)", "notes": "counts including embedding and head: [4, 6]"}
    shape = run()["strategy"] | {"pp": 2, "dp": 2, "gpus": 8}
    mapped = case(run(stack=words, strategy=shape, model={**run()["model"], "num_layers": 8}))
    assert mapped.assignment.layers.tolist() == [3, 5]


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        ("every second layer", [4, 3]),
        ("full recompute of 5 layers per stage", [5, 5]),
        ("full recompute of layers per stage [6, 3]", [6, 3]),
        ("selected operators, layers per stage [6, 3]", None),
        (None, None),
    ],
)
def test_words_on_recomputation_say_how_many_layers_of_each_stage(said, layers):
    assert recomputed_layers({"recompute_detail": said}, [8, 7]) == layers


def test_every_second_layer_is_recomputed_whole_and_the_others_kept():
    strategy = run()["strategy"] | {"recompute": "selective", "recompute_detail": "every second layer"}
    mapped = case(run(strategy=strategy))
    assert mapped.rows.recompute[0] == Recompute.PARTIAL
    assert mapped.assignment.recomputed.tolist() == [n // 2 for n in mapped.assignment.layers]


@pytest.mark.parametrize(
    ("algorithm", "waits"), [("algorithm 1", 2.0), ("algorithm 2", 1.0), ("synchronous all-reduce", 4.0)]
)
def test_a_vocabulary_over_all_stages_waits_as_often_as_its_algorithm(algorithm, waits):
    words = {"framework": "Megatron-LM fork (sail-sg)", "notes": f"vocabulary layers over all stages, {algorithm}"}
    found = frameworks.changes(run(stack=words) | {"strategy": {"pp": 8}}, stack("megatron-core"))
    assert found["vocabulary_in_flight"] == waits
    assert not found["idle_gradients"]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"source": "FlagOpen/FlagPerf training/nvidia/llama2_7b-deepspeed README"}, True),
        ({"stack": {"notes": "mem_efficient_linear=false"}}, True),
        ({"source": "FlagOpen/FlagPerf training/nvidia/llama3_8B-megatron README"}, False),
    ],
)
def test_models_built_with_pytorch_s_own_products_keep_what_was_gathered(changes, kept):
    assert ("gathered" in frameworks.changes(run(**changes), stack("deepspeed")).get("keeps", ())) == kept


@pytest.mark.parametrize(
    ("framework", "notes", "passes"),
    [
        ("ATorch (PyTorch FSDP1, HF transformers)", "", 2),
        ("ATorch (PyTorch FSDP1, HF transformers)", "use_cache=False", 0),
        ("ATorch (DeepSpeed pipeline engine, HF transformers)", "", 0),
        ("HF Transformers, PyTorch FSDP", "layers by checkpoint_wrapper", 2),
        ("HF Transformers, PyTorch FSDP", "use_cache: true", 2),
        ("TRL SFTTrainer (HF transformers)", "use_cache=True", 1),
        ("torchtitan", "layers by checkpoint_wrapper", 0),
    ],
)
def test_models_of_transformers_return_keys_and_values_unless_they_know_that_they_recompute(framework, notes, passes):
    row = run(stack={"framework": framework, "notes": notes})
    assert frameworks.changes(row, stack("fsdp"))["keeps"].count("cache") == passes


@pytest.mark.parametrize(("attention", "copies"), [("v2", False), (True, True), (False, True)])
def test_transformers_repeats_keys_and_values_for_all_but_flash_attention(attention, copies):
    row = run(stack={"framework": "HF Transformers + DeepSpeed", "attention": attention})
    assert ("key-values" in frameworks.changes(row, stack("deepspeed"))["keeps"]) == copies


@pytest.mark.parametrize(("logged", "held"), [("2025-03-04", 12), ("2025-06", None)])
def test_torchtitan_s_loss_is_eager_until_april_2025(logged, held):
    words = {"framework": "torchtitan", "overlap": "torch.compile"}
    row = run(source=f"a log of {logged}", stack=words, strategy={"tp": 1})
    assert frameworks.changes(row, stack("torchtitan")).get("cross_entropy_bytes") == held


@pytest.mark.parametrize(
    ("overlap", "keeps"), [("torch.compile", ("key-values",)), ("eager", ("gate", "norm", "key-values"))]
)
def test_blocks_that_are_compiled_keep_no_norm_and_no_gate_before_an_eager_loss(overlap, keeps):
    row = run(source="a log of 2024-12", stack={"framework": "torchtitan", "overlap": overlap}, strategy={"tp": 1})
    assert frameworks.changes(row, stack("torchtitan"))["keeps"] == keeps


@pytest.mark.parametrize(
    ("framework", "size"),
    [("Megatron-SWIFT (ms-swift 4.1.2, Megatron-Core 0.16.1)", 2), ("Megatron-SWIFT (Megatron-Core 0.12)", 4)],
)
def test_megatron_swift_adds_up_gradients_in_16_bits_since_it_reads_its_own_arguments(framework, size):
    mapped = case(run(stack={"framework": framework})).scenario.stack
    assert (mapped.gradients.gradient_bytes, mapped.gradients.reduce_bytes) == (size, size)


@pytest.mark.parametrize(("framework", "size"), [("HF Transformers + accelerate FSDP2", 2), ("torchtitan", 4)])
def test_accelerate_reduces_gradients_in_the_format_of_mixed_precision(framework, size):
    row = run(stack={"framework": framework})
    assert case(row).scenario.stack.gradients.reduce_bytes == size


@pytest.mark.parametrize(("words", "kept"), [("torch.compile", False), ("PyTorch 2.10", True)])
def test_models_of_transformers_that_are_compiled_keep_no_norm_and_no_gate(words, kept):
    row = run(stack={"framework": f"HF Transformers + accelerate FSDP2, {words}", "attention": "v2"})
    assert ("gate" in frameworks.changes(row, stack("torchtitan"))["keeps"]) == kept


@pytest.mark.parametrize(
    ("framework", "notes", "held"),
    [
        ("LitGPT (PyTorch FSDP2, eager)", "parameters, gradients and Adam moments in bf16", 8),
        ("LitGPT (PyTorch FSDP2, eager)", "bf16-mixed", 12),
        ("torchtitan", "parameters, gradients and Adam moments in bf16", 12),
    ],
)
def test_a_loss_that_casts_nothing_takes_logits_in_16_bits_where_weights_have_these(framework, notes, held):
    row = run(source="a log of 2024-12", stack={"framework": framework, "notes": notes}, strategy={"tp": 1})
    assert frameworks.changes(row, stack("torchtitan"))["cross_entropy_bytes"] == held


def test_weights_are_sharded_in_16_bits_where_all_states_are():
    row = run(stack={"framework": "PyTorch FSDP2", "notes": "parameters, gradients and Adam moments in bf16"})
    assert case(row).scenario.stack.states.weight_bytes == 2


def test_the_kernel_set_says_what_norms_and_softmax_keep():
    sets = ("kernel set: flash_attention2 + RMS kernel", "kernel set: flash_attention2", "kernel set: torch")
    words = [{"framework": "Aleph Alpha scaling", "notes": notes} for notes in sets]
    found = [frameworks.changes(run(stack=one), stack("generic"))["keeps"] for one in words]
    norms = [set(keeps) & {"norm", "softmax"} for keeps in found]
    assert norms == [set(), {"norm"}, {"norm", "softmax"}]


@pytest.mark.parametrize(
    ("kernels", "micro", "copies"),
    [
        ("flash_attention2", 1, {"rotated"}),
        ("flash_attention2", 2, {"rotated", "transposed"}),
        ("fused", 1, {"rotated"}),
        ("fused", 2, set()),
    ],
)
def test_views_of_aleph_alpha_s_projection_become_copies_with_several_sequences(kernels, micro, copies):
    words = {"framework": "Aleph Alpha scaling", "notes": f"kernel set: {kernels}"}
    row = run(stack=words)
    row["strategy"] = row["strategy"] | {"micro_batch_size": micro}
    assert set(frameworks.changes(row, stack("aleph-alpha"))["keeps"]) & {"rotated", "transposed"} == copies


def test_torchtitan_logs_what_its_allocator_took():
    figure = {"measured": {"memory": 1.0, "memory_kind": "peak GiB"}, "stack": {"framework": "torchtitan"}}
    assert memory_kind(figure)[1] == "cached"
    figure["measured"]["memory_kind"] = "peak allocated, GiB"
    assert memory_kind(figure)[1] == "allocated"


def test_moonlight_s_recipe_keeps_its_moments_in_16_bits():
    words = {"framework": "Megatron-Bridge 600d069"}
    moonlight, other = (
        frameworks.changes(run(stack=words) | {"model": {"name": name}}, stack("nemo"))
        for name in ("Moonlight-16B-A3B", "Llama3-8B")
    )
    assert moonlight["optimizer"] == "adam-bf16"
    assert "optimizer" not in other


@pytest.mark.parametrize(
    ("source", "dropped"),
    [
        ("NVIDIA dgxc-benchmarking v24.11.1, gpt3-175b recipe README", True),
        ("NVIDIA dgxc-benchmarking v24.11.1, nemotron4-340b recipe README", False),
        ("NVIDIA dgxc-benchmarking v24.11.1, paxml-gpt3-175b recipe README", False),
    ],
)
def test_nvidia_s_benchmark_of_gpt_3_trains_with_dropout(source, dropped):
    found = frameworks.changes(run(stack={"framework": "NeMo"}) | {"source": source}, stack("nemo"))
    assert found.get("dropout", False) is dropped


@pytest.mark.parametrize(
    ("gated", "source", "dropped"),
    [
        (True, "a page", False),
        (False, "a page", True),
        (True, "FlagPerf training/benchmarks/llama3_8B-megatron", True),
    ],
)
def test_llama_and_its_kin_drop_nothing_unless_their_script_does(gated, source, dropped):
    chosen = stack("megatron-deepspeed")
    found = frameworks.changes(run(model={"gated_ffn": gated}, source=source), chosen)
    assert found.get("dropout", chosen.switches.dropout) is dropped


@pytest.mark.parametrize(
    ("release", "fused"), [("26.02.01", False), ("25.11", False), ("26.04", True), ("26.08", True)]
)
def test_containers_before_transformer_engine_2_14_write_nvfp4_in_two_kernels(release, fused):
    words = {"framework": f"Megatron-Bridge (NeMo {release} container)"}
    assert frameworks.changes(run(stack=words), stack("nemo")).get("fused_casts", True) is fused


@pytest.mark.parametrize(
    ("changes", "fixed"),
    [
        ({"strategy": {"gpus": 8}, "source": "a log of 2025-03-04"}, False),
        ({"strategy": {"gpus": 16}, "source": "a log of 2025-03-04"}, True),
        ({"strategy": {"gpus": 8}, "source": "a log of 2024-09-04"}, True),
        ({"strategy": {"gpus": 8}, "cluster": {"accelerator": "mi300x", "gpus_per_node": 8}}, True),
    ],
)
def test_torchtitan_lets_segments_grow_on_one_node_of_nvidia_s(changes, fixed):
    row = run(stack={"framework": "torchtitan"}, **changes)
    assert segments(row) == {"fixed_segments": fixed}
    assert segments(run(stack={"framework": "Megatron-LM"})) == {}


@pytest.mark.parametrize(
    ("folder", "framework", "linger"),
    [("gpt2-meg", "Megatron-LM", True), ("gpt2-meg-ds-3d", "Megatron-LM", None), ("gpt2-meg", "Megatron-Core", None)],
)
def test_megatron_lm_of_may_2021_holds_on_to_the_gradients_of_a_step(folder, framework, linger):
    source = f"bigscience-workshop/bigscience experiments/{folder}/meg_gpt2_base_n4 log"
    row = run(source=source, stack={"framework": framework}, strategy={"precision": "fp16"})
    assert frameworks.changes(row, stack("megatron-lm-2020")).get("lingering_gradients") == linger


def test_alpa_gathers_all_new_parameters_at_once():
    assert frameworks.changes(run(stack={"framework": "Alpa (JAX/XLA)"}), stack("maxtext"))["joint_gather"]


@pytest.mark.parametrize("words", ["GB, sum over all GPUs", "total of 16 devices, GB", "GB, summed over ranks"])
def test_a_figure_of_all_devices_together_is_shared_out(words):
    assert only(judge_row(run(measured={"memory": 160.0, "memory_kind": words})), "memory").measured == 10e9


@pytest.mark.parametrize(
    "words", ["GB, total of weights and states", "total memory over ranks", "peak over all ranks, GB"]
)
def test_a_total_of_other_things_is_one_devices(words):
    assert only(judge_row(run(measured={"memory": 10.0, "memory_kind": words})), "memory").measured == 10e9


def test_a_flag_that_is_off_says_that_a_model_returns_no_keys():
    stack = {"framework": "ATorch (PyTorch FSDP1, HF transformers)", "flags": {"use_cache": False}}
    assert "cache" not in case(run(stack=stack)).scenario.stack.kernels.saved_tensors
    assert "cache" in case(run(stack={**stack, "flags": {}})).scenario.stack.kernels.saved_tensors
