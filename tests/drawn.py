"""Drawn machines, software and models for property tests."""

from hypothesis import strategies as st

from costmodels.model import Model
from costmodels.modules import MODULES
from costmodels.stack import Overlap
from costmodels.strategy import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES
from hardware.records import Tier
from tests.scenarios import (
    toy_device,
    toy_group,
    toy_hybrid,
    toy_link,
    toy_scenario,
    toy_stack,
    with_experts,
    with_latent_attention,
)


@st.composite
def drawn_groups(draw):
    """Machines with two or three tiers, from slow to fast, with and without latency and saturation."""
    numbers = st.sampled_from
    node = draw(numbers([2, 4, 8]))

    def link(low, high):
        return toy_link(
            bandwidth=draw(st.floats(low, high)),
            base=draw(numbers([0.0, 1e-5, 1e-4])),
            step=draw(numbers([0.0, 1e-6, 1e-5])),
            saturation=draw(numbers([0.0, 1e5, 1e7])),
            penalty=draw(numbers([0.0, 0.5])),
            gain=draw(numbers([1.0, 1.5])),
            gain_ranks=draw(numbers([0, 4])),
        )

    tiers = [Tier(name="node", domain=node, link=link(5e10, 1e12))]
    if draw(st.booleans()):
        tiers.append(Tier(name="leaf", domain=2 * node, link=link(1e10, 1e11)))
    tiers.append(Tier(name="net", domain=0, link=link(1e9, 5e10), oversubscription=draw(numbers([1.0, 2.0]))))
    device = toy_device(
        peak=draw(st.floats(1e13, 1e15)),
        bandwidth=draw(st.floats(3e11, 5e12)),
        overhead=draw(numbers([0.0, 3e-6])),
        k_half=draw(numbers([0.0, 100.0])),
        occupancy=draw(numbers([0.0, 1.0])),
        rows_half=draw(numbers([0.0, 50.0])),
        group=draw(numbers(["0 s", "1 us"])),
    )
    return toy_group(node=node, device=device, tiers=tuple(tiers))


def _kernels(draw):
    """Kernels, launches and what overlaps."""
    some = st.sampled_from
    hidden = draw(st.booleans())
    return {
        "attention": draw(some([("flash-2",), ("unfused",)])),
        "dropout": draw(st.booleans()),
        "fused_elementwise": draw(st.booleans()),
        "launch": draw(some(["0 s", "6 us"])),
        "cuda_graphs": draw(st.booleans()),
        "scatter_gather": draw(st.booleans()),
        "overlap": Overlap(
            tp_forward=draw(some([0.3, 1.0])),
            tp_backward=draw(some([0.5, 1.0])),
            cp=draw(some([0.0, 0.3, 1.0])),
            cp_collective=draw(some([0.5, 1.0])),
            ep=draw(some([0.4, 1.0])),
            pp=draw(some([0.2, 1.0])),
            pairs=draw(st.booleans()),
            gradients=hidden,
            parameters=hidden,
            third_stage=draw(st.booleans()),
            chunks=draw(st.booleans()),
        ),
    }


def _sharding(draw):
    """How states and ranks are laid out."""
    some = st.sampled_from
    return {
        "bucket_parameters": draw(some([0.0, 1e6])),
        "bucket_per_rank": draw(some([0.0, 1e6])),
        "zero_stages": draw(some([(0,), (0, 1), (0, 1, 2, 3)])),
        "cp_kinds": draw(some([("p2p",), ("all-gather",), CP_KINDS])),
        "repeats_key_values": draw(st.booleans()),
        "rank_orders": draw(some([RANK_ORDERS[:2], RANK_ORDERS])),
        "fully_sharded": draw(st.booleans()),
        "second_shard": draw(st.booleans()),
        "replicas_once": draw(st.booleans()),
        "uneven_stages": draw(st.booleans()),
        "root_unit": draw(st.booleans()),
        "pipeline_holds": draw(st.booleans()),
        "gathers_per_micro_batch": draw(st.booleans()),
    }


def _kept(draw):
    """What vocabularies, ends and recomputation keep."""
    some = st.sampled_from
    return {
        "vocabulary": draw(some([("ends",), ("ends", "spread")])),
        "vocabulary_in_flight": draw(some([0.0, 1.0, 2.0])),
        "idle_gradients": draw(st.booleans()),
        "gathered_logits": draw(st.booleans()),
        "gathered_inputs": draw(st.booleans()),
        "apart": draw(some([(), ("gate",), ("qkv", "gate")])),
        "norm_gathers": draw(st.booleans()),
        "flattened_gradients": draw(st.booleans()),
        "joint_gather": draw(st.booleans()),
        "lingering_gradients": draw(st.booleans()),
        "gradients_sharded": draw(st.booleans()),
        "gradients_offloaded": draw(st.booleans()),
        "reduce_bucket": draw(some(["0 GB", "1 GiB"])),
        "partitioned_checkpoints": draw(st.booleans()),
        "keeps": draw(some([(), ("gate", "norm", "key-values", "softmax"), ("gathered", "projected")])),
        "replica_buckets": draw(some([0, 2])),
        "empty_ends": draw(st.booleans()),
        "ends_as_layers": draw(st.booleans()),
        "selective": draw(
            some(["attention", "operators", "products", "projections", "attention-products", "feed-forward"])
        ),
        "lean_recompute": draw(st.booleans()),
    }


def _experts(draw):
    """Experts and schedules."""
    some = st.sampled_from
    return {
        "expert_imbalance": draw(some([1.0, 1.2])),
        "expert_capacity": draw(some([None, None, 0.8, 1.25])),
        "expert_masks": draw(st.booleans()),
        "dispatch": draw(some(["allgather", "every-copy", "once-per-domain"])),
        "dispatch_bytes": draw(some([1.0, 2.0])),
        "gathered_routes": draw(st.booleans()),
        "shared_expert_overlap": draw(st.booleans()),
        "fused_experts": draw(st.booleans()),
        "kernels_per_local_expert": draw(some([0, 14])),
        "graphs": draw(some([(), ("attn",), ("moe_router", "moe_preprocess")])),
        "schedules": (*SCHEDULE_NAMES[:4], *draw(st.lists(some(SCHEDULE_NAMES[4:]), max_size=3, unique=True))),
    }


def _rest(draw):
    """What is added to every iteration, and the formats of states."""
    some = st.sampled_from
    return {
        "sharded_stages": draw(st.booleans()),
        "slack": draw(some([0.0, 0.05])),
        "tensor_slack": draw(some([None, 0.2])),
        "straggler": draw(some([0.0, 0.02])),
        "blocking_launches": draw(some([False, False, True])),
        "deterministic": draw(some([False, False, True])),
        "iteration_overhead": draw(some(["0 s", "3 ms"])),
        "micro_batch_overhead": draw(some(["0 s", "50 us"])),
        "scale_kernels": draw(some([0, 10])),
        "shared_magnitudes": draw(some(["none", "tensor", "data"])),
        "optimizer": draw(some(["adam", "adam", "adam-8bit", "muon"])),
        "adapters": draw(some([None, None, None, {"rank": 8}, {"rank": 64, "modules": ["linear_qkv"]}])),
        "loss": draw(some(["plain", "plain", "fused"])),
        "loss_block": draw(some([0, 0, 256])),
        "weight_bytes": draw(some([2, 4])),
        "recompute_modules": draw(some([(), (), MODULES])),
    }


def _passes(draw):
    """What passes beside products move."""
    some = st.sampled_from
    return {
        "softmax_keys": draw(some([0, 512, 4096])),
        "fused_norms": draw(st.booleans()),
        "branches_apart": draw(st.booleans()),
        "around_attention": draw(some([(0.0, 0.0), (28.0, 16.0)])),
        "around_activation": draw(some([(0.0, 0.0), (4.0, 16.0)])),
    }


@st.composite
def drawn_stacks(draw):
    """Stacks with every switch that changes a formula."""
    parts = (_kernels, _sharding, _kept, _experts, _rest, _passes)
    return toy_stack(**{name: value for part in parts for name, value in part(draw).items()})


@st.composite
def drawn_models(draw, *, layers=(1, 2, 3, 4, 6, 8)):
    """Small decoders of several kinds."""
    heads = draw(st.sampled_from([4, 8]))
    gated = draw(st.booleans())
    hidden = heads * draw(st.sampled_from([32, 64, 128]))
    return Model.dense(
        num_layers=draw(st.sampled_from(layers)),
        hidden_size=hidden,
        num_heads=heads,
        num_query_groups=draw(st.sampled_from([1, 2, heads])),
        ffn_hidden_size=4 * hidden,
        gated_ffn=gated,
        vocab_size=draw(st.sampled_from([1000, 32000])),
        seq_length=draw(st.sampled_from([512, 2048])),
    ).model_copy(update={"tied_embeddings": draw(st.booleans()), "parallel_block": draw(st.booleans())})


@st.composite
def drawn_expert_models(draw, *, layers=(1, 2, 3, 4, 6, 8)):
    """Small decoders with experts: all layers or some, with shared experts, projections, latent attention."""
    model, some = draw(drawn_models(layers=layers)), st.sampled_from
    if draw(st.booleans()):
        model = with_latent_attention(model, q_lora_rank=draw(some([None, 64])))
    experts, shared = draw(some([2, 4, 8])), draw(some([0, 1]))
    dense = draw(some([0, 1])) if model.num_layers > 1 else 0
    return with_experts(
        model,
        num_experts=experts,
        top_k=draw(some([1, 2])),
        expert_ffn_hidden_size=draw(some([1, 2])) * model.hidden_size,
        num_shared_experts=shared,
        shared_expert_ffn_hidden_size=shared * model.hidden_size,
        dense_layers=dense,
        moe_every=draw(some([1, 2])) if model.num_layers > 2 else 1,
        latent_size=draw(some([None, model.hidden_size // 2])),
        mtp_layers=draw(some([0, 1])),
    )


@st.composite
def drawn_hybrid_models(draw, *, layers=(2, 3, 4, 6, 8)):
    """Small models of any pattern, at least one Mamba-2 mixer and one layer of another kind in it."""
    count = draw(st.sampled_from([n for n in layers if n > 1]))
    rest = draw(st.lists(st.sampled_from("M*-E"), min_size=count - 2, max_size=count - 2))
    letters = draw(st.permutations(["M", draw(st.sampled_from("*-E")), *rest]))
    return toy_hybrid("".join(letters), hidden_size=draw(st.sampled_from([256, 512])))


@st.composite
def drawn_depths(draw, *, layers=(2, 3, 4, 6, 8)):
    """Small models whose layers differ along the depth: hybrids, experts in some layers, local windows in some."""
    way = draw(st.sampled_from(["hybrid", "experts", "window"]))
    if way == "hybrid":
        return draw(drawn_hybrid_models(layers=layers))
    if way == "experts":
        return draw(drawn_expert_models(layers=layers))
    window = {"sliding_window": 128, "sliding_window_every": draw(st.sampled_from([2, 3]))}
    return draw(drawn_models(layers=layers)).model_copy(update=window)


@st.composite
def drawn_scenarios(
    draw, *, gpus=(1, 2, 4, 8, 16), batches=(8, 16, 48), layers=(1, 2, 3, 4, 6, 8), models=drawn_models
):
    """Any model on any machine with any stack."""
    return toy_scenario(
        gpus=draw(st.sampled_from(gpus)),
        batch=draw(st.sampled_from(batches)),
        model=draw(models(layers=layers)),
        group=draw(drawn_groups()),
        stack=draw(drawn_stacks()),
    )
