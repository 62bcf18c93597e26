"""Drawn machines, software and models for property tests."""

from hypothesis import strategies as st

from costmodels.layer.recompute_modules import MODULES
from costmodels.names import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES
from hardware.links import Tier
from tests.scenarios import (
    dense_model,
    toy_device,
    toy_group,
    toy_hybrid,
    toy_link,
    toy_scenario,
    toy_stack,
    with_experts,
    with_latent_attention,
)


def picks(draw):
    """A choice for every call, all of them decided by one drawn string, a byte each.

    Drawn one by one, the sixty switches of a stack take longer than what is tested with them.
    """
    left = iter(draw(st.binary(min_size=112, max_size=112)))
    return lambda *options: options[next(left) % len(options)]


@st.composite
def drawn_groups(draw):
    """Machines with two or three tiers, from slow to fast, with and without latency and saturation."""
    pick = picks(draw)
    node = pick(2, 4, 8)

    def link(low, high):
        return toy_link(
            bandwidth=draw(st.floats(low, high)),
            base=pick(0.0, 1e-5, 1e-4),
            step=pick(0.0, 1e-6, 1e-5),
            saturation=pick(0.0, 1e5, 1e7),
            penalty=pick(0.0, 0.5),
            gain=pick(1.0, 1.5),
            gain_ranks=pick(0, 4),
        )

    tiers = [Tier(name="node", domain=node, link=link(5e10, 1e12))]
    if pick(False, True):
        tiers.append(Tier(name="leaf", domain=2 * node, link=link(1e10, 1e11)))
    tiers.append(Tier(name="net", domain=0, link=link(1e9, 5e10), oversubscription=pick(1.0, 2.0)))
    device = toy_device(
        peak=draw(st.floats(1e13, 1e15)),
        bandwidth=draw(st.floats(3e11, 5e12)),
        overhead=pick(0.0, 3e-6),
        k_half=pick(0.0, 100.0),
        occupancy=pick(0.0, 1.0),
        rows_half=pick(0.0, 50.0),
        group=pick("0 s", "1 us"),
    )
    return toy_group(node=node, device=device, tiers=tuple(tiers))


def _kernels(pick):
    """Kernels, launches and what overlaps."""
    hidden = pick(False, True)
    return {
        "attention_backend": pick(("flash-2",), ("unfused",)),
        "dropout": pick(False, True),
        "fused_elementwise": pick(False, True),
        "launch_time": pick("0 s", "6 us"),
        "cuda_graphs": pick(False, True),
        "scatter_gather": pick(False, True),
        "tp_forward": pick(0.3, 1.0),
        "tp_backward": pick(0.5, 1.0),
        "cp": pick(0.0, 0.3, 1.0),
        "cp_collective": pick(0.5, 1.0),
        "ep": pick(0.4, 1.0),
        "pp": pick(0.2, 1.0),
        "paired_passes": pick(False, True),
        "overlap_grad_reduce": hidden,
        "overlap_param_gather": hidden,
        "overlap_zero3": pick(False, True),
        "by_chunk": pick(False, True),
    }


def _sharding(pick):
    """How states and ranks are laid out."""
    return {
        "bucket_size": pick(0.0, 1e6),
        "bucket_per_rank": pick(0.0, 1e6),
        "zero_stages": pick((0,), (0, 1), (0, 1, 2, 3)),
        "cp_kinds": pick(("p2p",), ("all-gather",), CP_KINDS),
        "repeats_key_values": pick(False, True),
        "rank_orders": pick(RANK_ORDERS[:2], RANK_ORDERS),
        "fsdp_stage2": pick(False, True),
        "zero_hpz": pick(False, True),
        "replicas_reduce_once": pick(False, True),
        "uneven_stages": pick(False, True),
        "root_unit": pick(False, True),
        "pipeline_keeps_gathered": pick(False, True),
        "gathers_per_micro_batch": pick(False, True),
    }


def _kept(pick):
    """What vocabularies, ends and recomputation keep."""
    return {
        "vocabulary": pick(("ends",), ("ends", "spread")),
        "vocabulary_in_flight": pick(0.0, 1.0, 2.0),
        "dummy_gradients": pick(False, True),
        "gathered_logits": pick(False, True),
        "keeps_gathered_inputs": pick(False, True),
        "separate_reductions": pick((), ("gate",), ("qkv", "gate")),
        "norm_gathers": pick(False, True),
        "flattened_copy": pick(False, True),
        "set_to_none": pick(False, True),
        "shared_loss_bytes": pick(0, 4),
        "joint_gather": pick(False, True),
        "kept_until_next_step": pick(False, True),
        "scatters_each_micro_batch": pick(False, True),
        "gradients_offloaded": pick(False, True),
        "reduce_bucket_size": pick("0 GB", "1 GiB"),
        "partitioned_inputs": pick(False, True),
        "saved_tensors": pick(
            (), ("gate", "norm", "key-values", "softmax"), ("gathered", "projected", "cache", "cache")
        ),
        "ddp_bucket_bytes": pick(0, 2),
        "empty_ends": pick(False, True),
        "ends_as_layers": pick(False, True),
        "recompute_policy": pick(
            "attention", "operators", "products", "projections", "attention-products", "feed-forward"
        ),
        "skips_unread": pick(False, True),
        "saves_cudnn": pick(False, True),
        "saves_exchanges": pick(False, True),
    }


def _experts(pick):
    """Experts and schedules."""
    more = [pick(*SCHEDULE_NAMES[4:]) for _ in range(3)]
    return {
        "expert_imbalance": pick(1.0, 1.2),
        "expert_capacity": pick(None, None, 0.8, 1.25),
        "dispatch_masks": pick(False, True),
        "dispatcher": pick("allgather", "alltoall", "deepep", "hybridep"),
        "dispatch_bytes": pick(1.0, 2.0),
        "shared_expert_overlap": pick(False, True),
        "fused_experts": pick(False, True),
        "bias_gradient_slowdown": pick(1.0, 1.0, 9.0),
        "kernels_per_local_expert": pick(0, 14),
        "cuda_graph_scope": pick((), ("attn",), ("moe_router", "moe_preprocess")),
        "schedules": (*SCHEDULE_NAMES[:4], *dict.fromkeys(more[: pick(0, 1, 2, 3)])),
        "post_validation": pick(False, True),
    }


def _rest(pick):
    """What is added to every iteration, and the formats of states."""
    return {
        "zero3_in_pipelines": pick(False, True),
        "frozen_bytes": pick(0.0, 0.0, 0.5),
        "fragmentation": pick(0.0, 0.05),
        "tensor_fragmentation": pick(None, 0.2),
        "straggler": pick(0.0, 0.02),
        "launch_blocking": pick(False, False, True),
        "deterministic": pick(False, False, True),
        "iteration_overhead": pick("0 s", "3 ms"),
        "micro_batch_overhead": pick("0 s", "50 us"),
        "calls_per_step": pick(0.0, 1000.0),
        "scale_kernels": pick(0, 10),
        "amax_group": pick("none", "tensor", "data"),
        "optimizer": pick("adam", "adam", "adam-8bit", "muon"),
        "adapters": pick(None, None, None, {"rank": 8}, {"rank": 64, "modules": ["linear_qkv"], "kernels": "32-bit"}),
        "base_precision": pick(None, None, "nf4", "fp32"),
        "task": pick("pretrain", "pretrain", "dpo", "kto"),
        "reference_model": pick("none", "none", "copy"),
        "document_length": pick(0, 0, 300),
        "frozen_layers": pick(0, 0, 0, 1),
        "frozen_embeddings": pick(False, False, True),
        "loss": pick("plain", "plain", "fused"),
        "loss_block": pick(0, 0, 256),
        "weight_bytes": pick(2, 4),
        "recompute_modules": pick((), (), MODULES),
    }


def _passes(pick):
    """What passes move besides products."""
    return {
        "longest_fused_softmax": pick(0, 512, 4096),
        "fused_norms": pick(False, True),
        "pytorch_rms_norm": pick(False, True),
        "separate_branches": pick(False, True),
        "attention_copy_bytes": pick((0.0, 0.0), (28.0, 16.0)),
        "activation_copy_bytes": pick((0.0, 0.0), (4.0, 16.0)),
    }


@st.composite
def drawn_stacks(draw):
    """Stacks with every switch that changes a formula."""
    pick = picks(draw)
    parts = (_kernels, _sharding, _kept, _experts, _rest, _passes)
    return toy_stack(**{name: value for part in parts for name, value in part(pick).items()})


@st.composite
def drawn_models(draw, *, layers=(1, 2, 3, 4, 6, 8)):
    """Small decoders of several kinds."""
    heads = draw(st.sampled_from([4, 8]))
    gated = draw(st.booleans())
    hidden = heads * draw(st.sampled_from([32, 64, 128]))
    return dense_model(
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
