"""Programs on Megatron-LM's arguments mean by their own options what they do, or refuse them by name."""

from pathlib import Path

import pytest

from planner.errors import BadRequest
from planner.jobs.megatron.dialect import dialect_of
from planner.jobs.megatron.read import READERS
from planner.jobs.reader import Context, Launch
from planner.jobs.shell import read_script

CASES = Path(__file__).parent / "cases"
GPT = (
    "pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --bf16 "
    "--max-position-embeddings 2048 --vocab-size 50304 --micro-batch-size 1 --global-batch-size 64 "
)
DEEPSPEED = GPT + "--deepspeed --deepspeed_config ds.json "
ASCEND = GPT + "--use-fused-rmsnorm --transformer-impl local "


def read(words, **more):
    launch = Launch(tuple(words.split()) if isinstance(words, str) else words, **more)
    (reader,) = (one for one in READERS if one.recognises(launch))
    return reader.read(launch, Context())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (GPT, "Megatron-LM"),
        (DEEPSPEED, "Megatron-DeepSpeed"),
        (GPT + "--model-parallel-size 2 --checkpoint-activations", "Megatron-LM of 2020"),
        (GPT + "--checkpoint-activations --DDP-impl local", "Megatron-LM before 2022"),
        (GPT + "--DDP-impl local", "Megatron-LM of 2022"),
        (ASCEND, "MindSpeed-LLM"),
        (GPT + "--patch-tokenizer-type Qwen2Tokenizer", "Pai-Megatron-Patch"),
        ("ray job submit -- python3 train.py --actor-num-nodes 1 --micro-batch-size 1", "slime"),
        ("megatron sft --micro_batch_size 1", "ms-swift (megatron)"),
        ("torchrun swift/cli/_megatron/pt.py --micro_batch_size 1", "ms-swift (megatron)"),
    ],
)
def test_a_program_is_known_by_its_name_or_by_options_that_only_it_has(words, name):
    assert dialect_of(Launch(tuple(words.split()))).name == name


@pytest.mark.parametrize(
    ("more", "pins"),
    [
        ("--checkpoint-activations", {"recompute": "full"}),
        ("--recompute-granularity full --recompute-method uniform", {"recompute": "full"}),
        ("--zero-stage 1", {"zero_stage": 1}),
        ("--zero-stage 2", {"zero_stage": 2}),
        ("--no-pipeline-parallel", {"pp": 1}),
        ("--ds-sequence-parallel-size 4", {"cp": 4, "cp_kind": "a2a"}),
        ("--cpu-optimizer", {"offload": "optimizer"}),
        ("--num-experts 64 --moe-expert-parallel-size 8", {"ep": 8}),
    ],
)
def test_megatron_deepspeed_has_words_of_its_own(more, pins):
    found = read(DEEPSPEED + more)
    assert pins.items() <= found.pins.items()
    assert found.fields["stack"] == "megatron-deepspeed"


PIPED = GPT + "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
SCATTERED, EXPOSED = "stack.pipeline.scatter_gather", "stack.overlap.tp_backward"


@pytest.mark.parametrize(
    ("more", "pins", "changes"),
    [
        ("--activations-checkpoint-method uniform", {"recompute": "full"}, {}),
        (
            "--activations-checkpoint-method block --activations-checkpoint-num-layers 3",
            {"recompute": "partial"}, {},
        ),
        ("--checkpoint-activations --checkpoint-num-layers 2", {"recompute": "full", "recompute_num_layers": 2}, {}),
        ("--DDP-impl local --recompute-granularity full --recompute-method uniform", {"recompute": "full"}, {}),
        ("--DDP-impl torch", {}, {"stack.overlap_grad_reduce": True}),
        ("--DDP-impl local --no-scatter-gather-tensors-in-pipeline", {}, {SCATTERED: False}),
        ("--no-async-tensor-model-parallel-allreduce", {}, {EXPOSED: 1.0}),
    ],
)  # fmt: skip
def test_options_that_were_removed_mean_what_their_release_did(more, pins, changes):
    found = read(PIPED + more)
    assert pins.items() <= found.pins.items()
    assert changes.items() <= found.fields["changes"].items()


def test_what_a_release_ignores_changes_nothing():
    both = "--no-async-tensor-model-parallel-allreduce --sequence-parallel"
    assert EXPOSED not in read(PIPED + both).fields["changes"]
    assert SCATTERED not in read(PIPED + "--no-scatter-gather-tensors-in-pipeline").fields["changes"]
    assert "stack.overlap_grad_reduce" not in read(DEEPSPEED + "--DDP-impl torch").fields["changes"]


def test_a_batch_and_degrees_of_2020_are_a_rank_s():
    words = GPT.replace("--micro-batch-size 1 --global-batch-size 64", "--batch-size 4 --model-parallel-size 8")
    assert {"tp": 8, "micro_batch_size": 4, "steps": 1}.items() <= read(words).pins.items()


@pytest.mark.parametrize(
    "option",
    ["no-query-key-layer-scaling", "data-impl mmap", "bias-gelu-fusion", "mmap-warmup", "override-lr-scheduler"],
)
def test_what_changed_no_price_in_its_release_is_not_mentioned(option):
    assert read(GPT + f"--DDP-impl local --{option}").unpriced == read(GPT + "--DDP-impl local").unpriced


def test_nothing_is_taken_for_its_opposite():
    found = read(GPT + "--no-overlap-grad-reduce --no-rope-fusions --disable-sequence-parallel").unpriced
    assert not any("mean --overlap" in line or "mean --sequence" in line for line in found)
    assert any("did you mean --no-rope-fusion?" in line for line in found)


def test_bloom_s_layers_and_both_ends_are_even_over_its_stages():
    words = DEEPSPEED.replace("--num-layers 24", "--num-layers 70") + "--pipeline-model-parallel-size 12 "
    found = read((*words.split(), "--pp-partition-method", "type:transformer|embedding", "--embed-layernorm"))
    assert found.layers == (5, *[6] * 10, 5)
    assert found.fields["model"]["embedding_norm"]
    assert read(words).layers == (*[6] * 10, 5, 5)


def test_stage_zero_in_bf16_shares_states_as_deepspeed_s_optimizer_does():
    assert read(DEEPSPEED + "--zero-stage 0").pins["zero_stage"] == 1
    assert read(DEEPSPEED.replace("--bf16", "--fp16") + "--zero-stage 0").pins["zero_stage"] == 0


def test_what_the_deepspeed_file_that_a_script_writes_says_is_read():
    zero = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "fp16": {"enabled": true}}'
    words = DEEPSPEED.replace("--bf16", "").replace("ds.json", "./ds.json")
    found = read(words, written={"./ds.json": zero})
    assert (found.pins["zero_stage"], found.pins["offload"], found.fields["precision"]) == (2, "optimizer", "fp16")


def test_adapters_of_ms_swift_train_in_bf16_beside_frozen_weights():
    (launch,) = read_script((CASES / "swift_lora.sh").read_text()).launches
    found = read(launch.words, environment=launch.environment)
    assert (found.fields["adapters"], found.fields["precision"], found.fields["gpus"]) == ("16", "bf16", 8)
    assert (found.fields["seq_length"], found.fields["global_batch_size"]) == (4096, 32)
    assert {"zero_stage": 1, "ep": 4, "etp": 1, "recompute": "full", "sequence_parallel": "false"}.items() <= (
        found.pins.items()
    )
    assert found.fields["changes"]["stack.shared_expert_overlap"] is True
    assert found.fields["changes"]["stack.dropout"] is False


def test_switches_of_ms_swift_are_true_or_false():
    swift = "megatron pt --model Qwen/Qwen3-8B --max_length 2048 --tensor_model_parallel_size 2 "
    on = read(swift + "--sequence_parallel true --gradient_accumulation_fusion false --overlap_grad_reduce true")
    off = read(
        swift + "--sequence_parallel false --gradient_accumulation_fusion true --use_distributed_optimizer false"
    )
    assert (on.pins["sequence_parallel"], off.pins["sequence_parallel"]) == ("true", "false")
    assert (on.pins["zero_stage"], off.pins["zero_stage"]) == (1, 0)
    assert on.fields["changes"]["stack.gradients.accumulate_traffic"] == 10
    assert "stack.gradients.accumulate_traffic" not in off.fields["changes"]
    assert on.fields["model"] == "Qwen/Qwen3-8B"
    assert "adapters" not in on.fields


def test_slime_trains_its_actor_in_bf16_with_a_sharded_optimizer():
    words = "train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-max-response-len 8192 "
    found = read(words + "--global-batch-size 256 --tensor-model-parallel-size 4 --hf-checkpoint /root/Qwen3-8B")
    assert (found.fields["gpus"], found.fields["precision"], found.fields["seq_length"]) == (16, "bf16", 8192)
    assert found.pins["zero_stage"] == 1


@pytest.mark.parametrize(
    ("more", "pins", "layers"),
    [
        ("--num-layers 26 --noop-layers 24,25 --pipeline-model-parallel-size 2", {"pp": 2}, (13, 11)),
        ("--pipeline-model-parallel-size 2 --num-layer-list 13,11", {"pp": 2}, (13, 11)),
        ("--context-parallel-size 2 --context-parallel-algo ulysses_cp_algo", {"cp_kind": "a2a"}, (24,)),
        ("--context-parallel-size 2 --context-parallel-algo kvallgather_cp_algo", {"cp_kind": "all-gather"}, (24,)),
        (
            "--num-experts 8 --expert-model-parallel-size 2 --tensor-model-parallel-size 4 --moe-tp-extend-ep",
            {"ep": 8, "etp": 1},
            (24,),
        ),
    ],
)
def test_layers_and_ranks_are_counted_as_mindspeed_counts_them(more, pins, layers):
    found = read(ASCEND + more)
    assert pins.items() <= found.pins.items()
    assert found.layers == layers
    assert found.fields["model"]["num_layers"] == sum(layers)
    assert found.fields["cluster"] == "atlas800t-a2"


def test_layers_that_mindspeed_recomputes_count_for_a_rank_where_it_says_so():
    chunks = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3"
    line = f"{ASCEND}{chunks} --recompute-granularity full --recompute-method block --recompute-num-layers 1"
    assert read(line).recomputed == (4, 4)
    assert read(f"{line} --enable-recompute-layers-per-pp-rank").recomputed == (1, 1)


def test_experts_of_mindspeed_are_read():
    experts = "--num-experts 8 --moe-intermediate-size 512 --first-k-dense-replace 3 --moe-layer-freq 1 "
    moe = read(ASCEND + experts + "--n-shared-experts 2").fields["model"]["moe"]
    assert (moe["dense_layers"], moe["expert_ffn_hidden_size"], moe["shared_expert_ffn_hidden_size"]) == (3, 512, 1024)
    everywhere = read(ASCEND + "--num-experts 8 --first-k-dense-replace -1 --moe-layer-freq -1")
    assert everywhere.fields["model"]["moe"]["dense_layers"] == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (ASCEND + "--schedules-method dualpipev", "--schedules-method: DualPipe's folded pipeline is not priced"),
        (ASCEND + "--tp-2d", "--tp-2d: two-dimensional tensor parallelism is not priced"),
        (DEEPSPEED + "--mlp-type residual", "--mlp-type: 'residual' is not priced; standard is"),
        (DEEPSPEED + "--enable-zbh1-pipeline", "--stack zero-bubble prices zero-bubble pipelines"),
        (ASCEND + "--noop-layers 99", "--noop-layers: '99' is not a layer; there are 24, counted from 0"),
        (ASCEND + "--pipeline-model-parallel-size 2 --num-layer-list 13,12", "expected 24 layers on 2 stages"),
    ],
)
def test_what_no_price_has_is_refused_by_name(words, reason):
    with pytest.raises(BadRequest) as refused:
        read(words)
    assert reason in str(refused.value)


@pytest.mark.parametrize("option", [
    "swap-optimizer", "recompute-activation-function", "moe-alltoall-overlap-comm", "fp32-residual-connection",
    "no-contiguous-buffers-in-local-ddp", "apply-query-key-layer-scaling",
])  # fmt: skip
def test_what_has_an_effect_without_a_price_is_told(option):
    assert any(line.startswith(f"--{option} is not priced: ") for line in read(f"{ASCEND} --{option}").unpriced)


def test_all_that_a_script_leaves_open_is_named_at_once():
    words = GPT.replace("--micro-batch-size 1", "--micro-batch-size ${MBS}") + "--tensor-model-parallel-size $1"
    unknown = {"${MBS}": "--env MBS=VALUE", "$1": "--arg VALUE", "$N": "--env N=VALUE"}
    found = read(f"{words} --nnodes $N", unknown=unknown)
    assert found.missing == (
        "--micro-batch-size ${MBS}: give --env MBS=VALUE",
        "--tensor-model-parallel-size $1: give --arg VALUE",
    )


def test_devices_are_those_that_the_commands_around_a_launch_take():
    batch = (("sbatch", "--nodes=4", "--gpus-per-node=8", "--ntasks-per-node=8"),)
    assert read(GPT, outer=batch).fields["gpus"] == 32
    assert "gpus" not in read(GPT + "--tensor-model-parallel-size 64", outer=batch).fields


@pytest.mark.parametrize(
    ("more", "schedule", "vpp"),
    [
        ("--enable-zero-bubble", "zb-1p", 1),
        ("--zero-bubble-v-schedule", "zb-v", 2),
        ("--enable-zb-runtime --zero-bubble-v-schedule-mem-setup half", "v-half", 2),
    ],
)
def test_zero_bubble_schedules_are_pinned(more, schedule, vpp):
    found = read(f"{GPT}--pipeline-model-parallel-size 4 {more}")
    assert (found.pins["schedule"], found.pins["vpp"], found.fields["stack"]) == (schedule, vpp, "zero-bubble")


def test_words_behind_a_flag_that_nobody_knows_are_taken_as_none_and_said():
    words = GPT.replace("--bf16", "--bf16 $MORE") + "--tensor-model-parallel-size 2 ${EXTRA}"
    found = read(words, unknown={"$MORE": "--env MORE=VALUE", "${EXTRA}": "--env EXTRA=VALUE"})
    assert (found.fields["precision"], found.pins["tp"], found.missing) == ("bf16", 2, ())
    assert "$MORE is taken as empty; --env MORE=VALUE sets it" in found.assumed
    assert "${EXTRA} is taken as empty; --env EXTRA=VALUE sets it" in found.assumed


@pytest.mark.parametrize("program", ["pretrain_t5.py", "pretrain_ict.py", "pretrain_vision_dino.py"])
def test_what_is_no_decoder_of_text_is_refused(program):
    with pytest.raises(BadRequest, match=rf"{program} trains .*, which is not priced"):
        read(GPT.replace("pretrain_gpt.py", program))


def test_that_bert_is_priced_as_a_decoder_is_said():
    assert any("bidirectional" in line for line in read(GPT.replace("gpt", "bert")).unpriced)
    assert not any("bidirectional" in line for line in read(GPT).unpriced)


VLM = GPT.replace("pretrain_gpt", "pretrain_vlm").replace("--seq-length", "--encoder-seq-length")


@pytest.mark.parametrize("program", ["pretrain_vlm.py", "train.py --vision-model-type clip"])
def test_a_multimodal_program_has_the_length_of_its_language_model(program):
    words = VLM.replace("pretrain_vlm.py", program) + "--decoder-seq-length 4096 --encoder-num-layers 12 --freeze-ViT"
    found = read(words)
    assert (found.fields["seq_length"], found.fields["model"]["num_layers"]) == (4096, 24)
    assert any("not the vision tower and its projection" in line for line in found.unpriced)
    assert any("--freeze-ViT is not priced" in line for line in found.unpriced)
    assert not any("not read" in line for line in found.unpriced)


def test_the_length_of_a_vision_tower_is_not_the_models():
    with pytest.raises(BadRequest, match="576 is for the vision tower; --decoder-seq-length is"):
        read(VLM.replace("2048 --bf16", "576 --bf16"))
    assert any("image tokens may come on top" in line for line in read(VLM + "--seq-length 1024").unpriced)


MAMBA = GPT.replace("pretrain_gpt", "pretrain_mamba").replace("--num-layers 24", "--num-layers 10")


@pytest.mark.parametrize(
    ("more", "pattern"),
    [  # as Megatron-Core's allocate_layers has them
        ("", "MMMMMMMMMM"),
        ("--hybrid-attention-ratio 0.2", "MMM*MM*MMM"),
        ("--hybrid-attention-ratio 0.3 --hybrid-mlp-ratio 0.3", "M-*MM*-*M-"),
        ("--hybrid-layer-pattern M-M*-", "M-M*-"),
    ],
)
def test_ratios_say_the_layers_of_a_hybrid_where_no_pattern_does(more, pattern):
    assert read(MAMBA + more).fields["model"]["layer_pattern"] == pattern


@pytest.mark.parametrize("ratios", ["--hybrid-mlp-ratio 1.5", "--hybrid-attention-ratio 0.6 --hybrid-mlp-ratio 0.6"])
def test_ratios_of_no_layers_are_refused(ratios):
    with pytest.raises(BadRequest, match="--hybrid-layer-pattern says the layers"):
        read(MAMBA + ratios)
