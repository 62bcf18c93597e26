"""Megatron-LM's arguments are priced, named or refused, as its own parser and checks take them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import PlanRequest, predict
from planner.cli import main
from planner.errors import BadRequest
from planner.jobs.imported import complete
from planner.request.tables import model_of
from tests.each import each
from tests.planner.jobs.scripts import megatron_job

DENSE = (
    "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --bf16 "
    "--max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 128 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
)
FULL = "--recompute-granularity full --recompute-method "


def predicted(tmp_path, words, *more):
    path = tmp_path / "run.sh"
    path.write_text(words)
    asked = ["predict", "--from", "megatron-args", str(path), "--gpus", "16", "--format", "json", *more]
    return CliRunner().invoke(main, asked)


@pytest.mark.parametrize(
    ("more", "pins", "layers"),
    [
        ("--recompute-activations", {"recompute": "selective"}, None),
        ("--moe-layer-recompute", {"recompute": "selective", "recompute_modules": "core_attn,moe"}, None),
        ("--recompute-granularity selective --recompute-modules mlp", {"recompute_modules": "mlp"}, None),
        ("--optimizer-offload-fraction 0.0", {"offload": "none"}, None),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.0", {"offload": "none"}, None),
        (f"{FULL}block --recompute-num-layers 16", {"recompute": "full"}, None),
        (f"{FULL}block --recompute-num-layers 0", {"recompute": "none"}, None),
        (f"{FULL}block --recompute-num-layers 15", {"recompute": "partial"}, (15, 15)),
        (f"{FULL}block --recompute-num-layers 3 --num-layers-per-virtual-pipeline-stage 4", {}, (12, 12)),
        (f"{FULL}uniform --recompute-num-layers 4", {"recompute": "full", "recompute_num_layers": 4}, None),
    ],
)
def test_recomputation_is_read_in_every_way_that_it_is_said(more, pins, layers):
    found = megatron_job(DENSE + more)
    assert pins.items() <= found.pins.items()
    assert found.recomputed == layers


@pytest.mark.parametrize(
    "script",
    [
        "TP=2\nexport PP=4\ntorchrun {} --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${{PP}}",
        "TP=${{TP:-2}}; PP=$((2*2))\npython {} --tensor-model-parallel-size=$TP --pipeline-model-parallel-size $PP",
        'N=4\nMORE="--tensor-model-parallel-size 2 --pipeline-model-parallel-size $N"\npython {} $MORE',
        "ALL=(\n --tensor-model-parallel-size ${{TP:-2}} --pipeline-model-parallel-size 4\n)\npython {} ${{ALL[@]}}",
    ],
)
def test_variables_that_a_script_sets_are_put_in_where_it_uses_them(script):
    found = megatron_job(script.format(DENSE.split("--tensor", maxsplit=1)[0]))
    assert {"tp": 2, "pp": 4}.items() <= found.pins.items()


def test_a_variable_that_nothing_sets_is_named():
    job = megatron_job(f"TP=$1\n{DENSE} --tensor-model-parallel-size $TP")
    assert any("--arg" in line and "tp" in line for line in job.missing)


@pytest.mark.parametrize("count", [1, 15])
def test_as_many_layers_of_a_block_are_priced_as_are_asked_for(count, tmp_path):
    told = json.loads(predicted(tmp_path, f"{DENSE}{FULL}block --recompute-num-layers {count}").stdout)
    assert [stage["recompute_layers"] for stage in told["strategy"]["stages"]] == [count, count]
    none = json.loads(predicted(tmp_path, DENSE).stdout)
    again = told["breakdown_seconds"]["recompute"]
    assert again > none["breakdown_seconds"]["recompute"] == 0.0
    assert told["prediction"]["iteration_seconds"] > none["prediction"]["iteration_seconds"]


def test_a_layout_whose_chunks_differ_is_priced_with_a_word_on_it_and_by_hand_refused(tmp_path):
    words = f"{DENSE}--pipeline-model-parallel-layout 'Et*7|t*8|t*8|t*9L'"
    told = json.loads(predicted(tmp_path, words).stdout)
    assert [stage["layers"] for stage in told["strategy"]["stages"]] == [15, 17]
    said = "stage 0 holds 15 layers, which make no 2 equal chunks; they are priced as equal chunks"
    assert said in told["warnings"]
    by_hand = predicted(tmp_path, words, "--layers-per-stage", "15,17")
    assert (by_hand.exit_code, by_hand.stdout) == (2, "")
    assert "16,16 would" in by_hand.stderr


def test_an_option_above_the_file_s_recomputation_wins(tmp_path):
    words = f"{DENSE}{FULL}block --recompute-num-layers 15"
    told = json.loads(predicted(tmp_path, words, "--recompute", "full").stdout)
    assert [stage["recompute_layers"] for stage in told["strategy"]["stages"]] == [16, 16]


REFUSED = [
    (f"{FULL}uniform", "--recompute-granularity full needs --recompute-num-layers"),
    ("--recompute-granularity full --recompute-num-layers 1", "full needs --recompute-method uniform or block"),
    (f"{FULL}uniform --recompute-num-layers 1 --recompute-activations", "means selective recomputation"),
    ("--recompute-granularity selective --recompute-num-layers 2", "--recompute-num-layers goes with"),
    ("--recompute-granularity half", "'half' is not priced; full, selective are"),
    (f"{FULL}some --recompute-num-layers 1", "'some' is not priced; uniform, block are"),
    ("--optimizer nosuch", "--optimizer: 'nosuch' is not priced; adam, sgd, dist_muon"),
    ("--optimizer lion", "--optimizer: 'lion' is not priced"),
    ("--exp-avg-dtype int4", "--exp-avg-dtype: 'int4' is not priced"),
    ("--fp8-format hybrid --fp8-recipe nosuch", "--fp8-recipe: 'nosuch' is not priced"),
    ("--fp8-format hybrid --fp4-format e2m1", "cannot be used together"),
    ("--normalization BatchNorm", "--normalization: 'BatchNorm'"),
    ("--position-embedding-type relative", "--position-embedding-type: 'relative'"),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy all", "--data-parallel-sharding-strategy: 'all'"),
    ("--cp-comm-type ring", "--cp-comm-type: 'ring'"),
    ("--cp-comm-type p2p a2a", "one kind for all layers is"),
    ("--optimizer-cpu-offload --fine-grained-activation-offloading", "not priced together"),
    ("--num-layers-per-virtual-pipeline-stage 5", "5 does not divide the 16 layers of a stage; 4 and 8 do"),
    ("--num-layers-per-virtual-pipeline-stage 20", "20 does not divide the 16 layers of a stage; 16 does"),
    ("--num-virtual-stages-per-pipeline-rank 3", "3 does not divide the 16 layers of a stage; 2 and 4 do"),
    ("--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 8", "both set the chunks"),
    (
        "--num-layers-per-virtual-pipeline-stage 8 --decoder-first-pipeline-num-layers 12",
        "leave out --decoder-first-pipeline-num-layers",
    ),
    ("--pipeline-model-parallel-layout Et*15|t*16L", "has 31 layers, --num-layers is 32"),
    ("--pipeline-model-parallel-size 1 --num-virtual-stages-per-pipeline-rank 2", "2 chunks on one stage"),
    ("--tensor-model-parallel-size 0", "--tensor-model-parallel-size: expected a whole number from 1 on, got '0'"),
    ("--micro-batch-size -1", "--micro-batch-size: expected a whole number from 1 on"),
    (f"--num-experts {'9' * 5000}", "--num-experts: expected a whole number"),
    ("--num-experts 8 --moe-layer-freq ([0]*3", "--moe-layer-freq: expected one layer in n or bits"),
    ("--num-experts 8 --moe-layer-freq [1]*99999999999", "--moe-layer-freq: expected one layer in n or bits"),
    ("--num-experts 8 --moe-layer-freq [1]*16+[0]*16", "only leading dense layers and"),
]


def quoted(words):
    """As a shell wants them."""
    return " ".join(f"'{one}'" if set("([|") & set(one) else one for one in words.split())


@each(("more", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_megatron_refuses_or_no_price_has_is_refused_with_its_word(more, reason):
    with pytest.raises(BadRequest) as refused:
        megatron_job(DENSE + quoted(more))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_data_parallel_ranks_that_do_not_make_up_the_devices_are_refused(tmp_path):
    done = predicted(tmp_path, DENSE + "--data-parallel-size 3")
    assert done.exit_code == 2
    assert "dp 3 x tp 2 x pp 2 is not 16 GPUs; the nearest that works: --dp 4, the rest as asked" in done.stderr
    assert predicted(tmp_path, DENSE + "--data-parallel-size 4").exit_code == 0


@pytest.mark.parametrize(("more", "vpp"), [("4", 4), ("8", 2), ("16", 1)])
def test_layers_per_chunk_are_chunks_of_a_stage(more, vpp):
    assert megatron_job(f"{DENSE}--num-layers-per-virtual-pipeline-stage {more}").pins["vpp"] == vpp


@pytest.mark.parametrize("missing", ["--max-position-embeddings", "--seq-length", "--hidden-size"])
def test_a_size_that_is_missing_is_named_as_missing_and_not_needed_beside_a_model(missing, tmp_path):
    words = DENSE.split()
    place = words.index(missing)
    words = " ".join(words[:place] + words[place + 2 :])
    done = predicted(tmp_path, words)
    assert done.exit_code == 2
    assert f"{missing} is missing" in done.stderr
    assert done.stderr.count("\n") == 1
    assert predicted(tmp_path, words, "--model", "llama3-8b").exit_code == 0


def test_a_rank_alone_shares_its_states_with_nobody(tmp_path):
    done = predicted(tmp_path, DENSE + "--use-distributed-optimizer", "--tp", "8")
    assert json.loads(done.stdout)["strategy"]["zero_stage"] == 0
    done = predicted(tmp_path, DENSE + "--use-distributed-optimizer", "--tp", "8", "--zero-stage", "1")
    assert (done.exit_code, json.loads(done.stdout)["strategy"]["zero_stage"]) == (0, 0)


def test_a_batch_that_is_not_given_is_one_micro_batch_of_every_rank_and_said_so(tmp_path):
    done = predicted(tmp_path, DENSE.replace("--global-batch-size 128", ""))
    assert json.loads(done.stdout)["strategy"]["global_batch_size"] == 4
    assert "--global-batch-size is not given; one micro-batch per data-parallel rank is priced" in done.stderr
    fields, _ = complete({"gpus": 16}, {"tp": 2, "pp": 2, "micro_batch_size": 2, "steps": 1})
    assert fields["global_batch_size"] == 8


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("--swiglu", "ffn_hidden_size", 10880),
        ("", "ffn_hidden_size", 16384),
        ("--group-query-attention", "num_query_groups", 1),
        ("--group-query-attention --num-query-groups 8", "num_query_groups", 8),
        ("--num-query-groups 8", "num_query_groups", 32),
        ("--use-rotary-position-embeddings", "position", "rotary"),
    ],
)
def test_what_the_arguments_leave_open_is_megatron_s_own_default(more, field, value):
    assert megatron_job(DENSE + more).fields["model"][field] == value


@pytest.mark.parametrize(
    ("frequency", "with_experts"),
    [
        ("([0]*2+[1]*30)", [layer >= 2 for layer in range(32)]),
        ("[0]+[1]*31", [layer >= 1 for layer in range(32)]),
        ("([0]+[1])*16", [layer % 2 == 1 for layer in range(32)]),
        ("1", [True] * 32),
    ],
)
def test_a_pattern_of_experts_is_read_layer_by_layer(frequency, with_experts):
    read = model_of(megatron_job(f"{DENSE}--num-experts 8 --moe-layer-freq '{frequency}'").fields["model"])
    assert [read.moe.is_moe_layer(layer) for layer in range(32)] == with_experts


def test_one_layer_in_two_begins_with_the_first_as_in_megatron_and_is_refused():
    with pytest.raises(BadRequest, match="--moe-layer-freq 2: only leading dense layers"):
        megatron_job(f"{DENSE}--num-experts 8 --moe-layer-freq 2")


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        ("--rampup-batch-size 16 16 1000", "--rampup-batch-size: the batch grows from 16 on, over 1000 sequences"),
        ("--delay-wgrad-compute", "--delay-wgrad-compute is not priced: more expert communication hides"),
        ("--attention-backend flash", "--attention-backend flash is priced as FlashAttention 2"),
        ("--recompute-method uniform", "--recompute-method has no effect without --recompute-granularity"),
        ("--num-query-groups 8", "--num-query-groups has no effect without --group-query-attention"),
        ("--exp-avg-dtype bf16", "--exp-avg-sq-dtype fp32 is priced as --exp-avg-dtype bf16"),
    ],
)
def test_what_changes_speed_or_memory_and_is_not_priced_is_told(more, remark):
    assert any(told.startswith(remark) for told in megatron_job(DENSE + more).lines)


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("--main-grads-dtype bf16", "main_grads", "bf16"),
        ("--optimizer dist_muon", "optimizer", "muon"),
        ("--exp-avg-dtype fp16", "optimizer", "adam-bf16"),
    ],
)
def test_formats_of_states_are_read(more, field, value):
    assert megatron_job(DENSE + more).fields[field] == value


CASES = Path(__file__).parent / "cases"


def test_positions_that_are_switched_off_beside_a_rotation_are_rotated():
    job = megatron_job((CASES / "no_position_embedding_rope.sh").read_text())
    assert job.fields["model"]["position"] == "rotary"
    assert megatron_job(DENSE + "--no-position-embedding").fields["model"]["position"] == "none"


def test_a_sharded_optimizer_over_one_rank_is_priced_unsharded():
    job = megatron_job((CASES / "dp1_distopt.sh").read_text())
    fields, pins = complete(job.fields, job.pins)
    assert (fields["gpus"], pins["tp"], pins["pp"], pins["zero_stage"]) == (16, 8, 2, 0)
    found = predict(PlanRequest(**fields, cluster="gb200-nvl72", pins=pins, reasons=False))
    assert found.strategy is not None
    first = found.memory_bytes[0]  # 2 bytes of weight, 4 of gradient and 12 of states a parameter, as unsharded
    assert first.optimizer == pytest.approx(6.0 * first.weights)
    assert first.gradients == pytest.approx(2.0 * first.weights)


def test_the_width_of_a_head_beside_latent_attention_is_the_latent_one_s():
    latent = "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "
    read = model_of(megatron_job(f"{DENSE}{latent}--kv-channels 128").fields["model"])
    assert read.head_dim == 192
    assert read.mla is not None


@pytest.mark.parametrize(("more", "every"), [("4", 4), ("[1,1,1,0]*8", 4), ("([1]*1+[0]*1)*16", 2), ("[1]*32", None)])
def test_layers_that_attend_to_all_tokens_are_read_by_number_and_by_bits(more, every):
    found = megatron_job(f"{DENSE}--window-size 127,0 --window-attn-skip-freq '{more}'").fields["model"]
    assert found["sliding_window"] == 128
    assert found.get("sliding_window_every") == every
