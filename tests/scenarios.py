"""Small scenarios with round constants, random valid rows, and drawn scenarios for property tests."""

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import strategies as st

from costmodels.model import Experts, LatentAttention, Model, checked, from_shape
from costmodels.modules import MODULES
from costmodels.scenario import Scenario
from costmodels.schedules import SCHEDULES
from costmodels.stack import Overlap, Stack
from costmodels.strategy import CP_KINDS, RANK_ORDERS, SCHEDULE_NAMES, Recompute, strategies
from hardware.kernels import AttentionFit, GemmFit, GroupedFit, Kernels, MemoryBoundFit
from hardware.records import Accelerator, Cluster, Link, NodeGroup, Tier

NONE, GPIPE, ONE_F_ONE_B, INTERLEAVED = (SCHEDULE_NAMES.index(name) for name in SCHEDULE_NAMES[:4])


def toy_link(
    *,
    bandwidth=100e9,
    base=0.0,
    step=0.0,
    saturation=0.0,
    penalty=0.0,
    gain=1.0,
    gain_ranks=0,
    mesh=0,
    axes=0,
    one_way=None,
):
    """A link whose efficiencies are one, so that seconds can be counted by hand."""
    return Link(
        bandwidth=f"{bandwidth!r} B/s",
        efficiency=1.0,
        saturation=f"{float(saturation)!r} B",
        group_penalty=penalty,
        base_latency=f"{float(base)!r} s",
        step_latency=f"{float(step)!r} s",
        all_reduce_gain=gain,
        mesh=mesh,
        axes=axes,
        gain_ranks=gain_ranks,
        group_bandwidth=None if one_way is None else f"{one_way!r} B/s",
        point_to_point=1.0,
        source="toy",
    )


def toy_tiers(*, node=4, inner=None, outer=None):
    """Nodes of ``node`` devices at 100 GB/s, joined at 10 GB/s per device."""
    return (
        Tier(name="node", domain=node, link=inner or toy_link()),
        Tier(name="net", domain=0, link=outer or toy_link(bandwidth=10e9)),
    )


def toy_device(
    *, peak=100e12, bandwidth=1e12, memory=80e9, overhead=0.0, k_half=0.0, occupancy=0.0, rows_half=0.0, group="0 s"
):
    """An accelerator that reaches its peak in every kernel unless told otherwise."""
    late = f"{overhead!r} s"
    gemm = GemmFit(efficiency=1.0, k_half=k_half, memory_efficiency=1.0, overhead=late, wgrad_ratio=1.0, source="toy")
    attention = AttentionFit(
        efficiency=1.0, occupancy=occupancy, overhead=late, backward_efficiency_ratio=1.0, source="toy"
    )
    device = Accelerator(
        name="toy",
        title="Toy",
        vendor="Toys",
        year=2024,
        architecture="toy",
        peak={"bf16": "100 TFLOP/s"},
        memory="80 GB",
        usable_memory="80 GB",
        memory_bandwidth="1 TB/s",
        compute_units=100,
        power="500 W",
        price="3.6 $/h",
        kernels=Kernels(
            gemm={"bf16": gemm},
            attention={"flash-2": attention},
            memory_bound=MemoryBoundFit(fused=1.0, stock=0.5, backward=0.5, source="toy"),
            grouped=GroupedFit(
                rows_half=rows_half, memory_efficiency=1.0, group_overhead=group, stream_efficiency=1.0, source="toy"
            ),
            launch="0 s",
            source="toy",
        ),
        sources={},
    )
    # Copied in, since a catalogue refuses what some tests need: no memory to speak of, bandwidth without end.
    extreme = {"memory": memory, "usable_memory": memory, "memory_bandwidth": bandwidth}
    return device.model_copy(update=extreme | {"peak": {"bf16": peak, "fp32": peak}})


def toy_group(*, node=4, device=None, tiers=None):
    """Nodes of four toy devices."""
    return NodeGroup(
        name="toys",
        accelerator=device or toy_device(),
        gpus_per_node=node,
        tiers=tiers or toy_tiers(node=node),
        node_power_overhead="1 kW",
        host_memory="10 TB",
        host_link="50 GB/s",
        host_bandwidth="400 GB/s",
    )


def toy_cluster(**parts):
    """The cluster of one toy group."""
    return Cluster(name="toy-cluster", title="Toys", groups=(toy_group(**parts),), sources={"all": "toy"})


def toy_stack(**changes):
    """A stack without launch floors, slack or reserve, whose routers spread tokens evenly."""
    plain = {
        "name": "toy",
        "title": "Toy",
        "source": "toy",
        "attention": ("flash-2",),
        "launch": "0 s",
        "reserved": "0 B",
        "slack": 0.0,
        "expert_imbalance": 1.0,
    }
    return Stack(**(plain | changes))


def toy_model(**changes):
    """A GPT of 8 layers; every tensor degree up to 8 divides it."""
    sizes = {"num_layers": 8, "hidden_size": 1024, "num_heads": 8, "vocab_size": 8192, "seq_length": 1024}
    return Model.dense(**(sizes | changes))


def with_experts(model, *, mtp_layers=0, **changes):
    """The model with experts in its layers: eight of half its hidden size, of which a token meets two."""
    sizes = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": model.hidden_size // 2}
    parts = {"moe": Experts(**(sizes | changes)), "mtp_layers": mtp_layers}
    return checked(model.model_dump() | parts, label=model.name)


def with_latent_attention(model, *, q_lora_rank=None):
    """The model with latent attention; keys are half as wide again as values, a third of them rotated."""
    width = model.hidden_size // model.num_heads
    mla = LatentAttention(
        q_lora_rank=q_lora_rank,
        kv_lora_rank=2 * width,
        qk_nope_head_dim=width,
        qk_rope_head_dim=width // 2,
        v_head_dim=width,
    )
    changes = {"mla": mla, "head_dim": mla.qk_head_dim, "num_query_groups": model.num_heads}
    return checked(model.model_dump() | changes, label=model.name)


def toy_scenario(
    *, gpus=8, batch=16, model=None, group=None, stack=None, seq_length=None, precision="bf16", framework=""
):
    """Eight toy devices train the toy model."""
    model = model or toy_model()
    return Scenario(
        model=model,
        group=group or toy_group(),
        stack=stack or toy_stack(),
        gpus=gpus,
        seq_length=seq_length or model.seq_length,
        global_batch_size=batch,
        precision=precision,
        framework=framework,
    )


def changed_device(scenario, **update):
    """The same scenario with fields of the accelerator replaced."""
    device = scenario.group.accelerator.model_copy(update=update)
    return replace(scenario, group=scenario.group.model_copy(update={"accelerator": device}))


def changed_link(scenario, index, **update):
    """The same scenario with fields of one tier's link replaced."""
    tiers = list(scenario.group.tiers)
    tiers[index] = tiers[index].model_copy(update={"link": tiers[index].link.model_copy(update=update)})
    return replace(scenario, group=scenario.group.model_copy(update={"tiers": tuple(tiers)}))


def factors_of(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def random_rows(scenario, count, seed):
    """Valid strategies, by rejection and in plain Python, so that no code of the planner decides."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(200 * count):
        row = _random_row(scenario, chance)
        if row is not None:
            found.append(row)
        if len(found) == count:
            break
    return strategies(**{axis: [row[axis] for row in found] for axis in found[0]})


def _random_row(scenario, chance):
    model, stack = scenario.model, scenario.stack
    degrees, left = {}, scenario.gpus
    for axis in ("tp", "pp", "cp"):
        degrees[axis] = int(chance.choice(factors_of(left)))
        left //= degrees[axis]
    tp, pp, cp, dp = degrees["tp"], degrees["pp"], degrees["cp"], left
    assert prod((tp, pp, cp, dp)) == scenario.gpus
    if model.num_heads % tp or (model.num_query_groups % tp and tp % model.num_query_groups):
        return None
    if pp > model.num_layers or scenario.global_batch_size % dp or scenario.seq_length % (2 * cp * tp):
        return None
    micro = int(chance.choice(factors_of(scenario.global_batch_size // dp)))
    batches = scenario.global_batch_size // dp // micro
    fits = [v for v in factors_of(model.num_layers) if pp * v <= model.num_layers]
    room = [v for v in fits if stack.uneven_stages or model.num_layers % (pp * v) == 0]
    if not room:
        return None
    vpp = int(chance.choice(room)) if pp > 1 else 1
    runs = [
        name for name in stack.schedules if (pp == 1) == (name == "none") and SCHEDULES[name].allowed(pp, batches, vpp)
    ]
    if not runs:
        return None
    if not stack.uneven_stages and model.num_layers % (pp * vpp):
        return None
    stages = [z for z in stack.zero_stages if z == 0 or (dp * cp > 1 and (z == 1 or pp == 1))]
    zero = int(chance.choice(stages))
    ep, etp = _random_expert_ranks(scenario, chance, tp=tp, ranks=tp * cp * dp)
    orders = len(RANK_ORDERS) if model.moe is None or ep * etp == tp * cp else 1
    return {
        "tp": tp,
        "cp": cp,
        "cp_kind": _random_kind(scenario, chance, tp=tp, cp=cp),
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "etp": etp,
        "vpp": vpp,
        "micro_batch_size": micro,
        "num_microbatches": batches,
        "schedule": SCHEDULE_NAMES.index(str(chance.choice(runs))),
        "sequence_parallel": int(tp > 1 and (model.moe is not None or chance.random() < 0.5)),
        "recompute": int(chance.choice(list(Recompute))),
        "rank_order": int(chance.integers(orders)),
        "vocabulary": int(pp > 1 and "spread" in stack.vocabulary and chance.random() < 0.5),
        "zero_stage": zero,
        "sharding_degree": int(chance.choice(factors_of(dp * cp)[1:])) if zero else 1,
    }


def _random_kind(scenario, chance, *, tp, cp):
    """A way to exchange that these ranks and heads allow; p2p and the gather always do."""
    if cp == 1:
        return 0
    model = scenario.model
    alike = model.num_heads % (tp * cp) == 0 and model.num_query_groups % (tp * cp) == 0
    return int(chance.choice([0, 2, *([1] if alike else [])]))


def _random_expert_ranks(scenario, chance, *, tp, ranks):
    moe = scenario.model.moe
    if moe is None:
        return 1, 1
    etp = int(chance.choice([n for n in factors_of(tp) if moe.expert_ffn_hidden_size % n == 0]))
    ep = int(chance.choice([n for n in factors_of(moe.num_experts) if ranks % (n * etp) == 0]))
    return ep, etp


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


@st.composite
def drawn_stacks(draw):
    """Stacks with every switch that changes a formula."""
    some = st.sampled_from
    hidden = draw(st.booleans())
    return toy_stack(
        attention=draw(some([("flash-2",), ("unfused",)])),
        dropout=draw(st.booleans()),
        fused_elementwise=draw(st.booleans()),
        launch=draw(some(["0 s", "6 us"])),
        cuda_graphs=draw(st.booleans()),
        scatter_gather=draw(st.booleans()),
        overlap=Overlap(
            tp_forward=draw(some([0.3, 1.0])),
            tp_backward=draw(some([0.5, 1.0])),
            cp=draw(some([0.0, 0.3, 1.0])),
            cp_collective=draw(some([0.5, 1.0])),
            ep=draw(some([0.4, 1.0])),
            pp=draw(some([0.2, 1.0])),
            pairs=draw(st.booleans()),
            gradients=hidden,
            parameters=hidden,
        ),
        bucket_parameters=draw(some([0.0, 1e6])),
        bucket_per_rank=draw(some([0.0, 1e6])),
        zero_stages=draw(some([(0,), (0, 1), (0, 1, 2, 3)])),
        cp_kinds=draw(some([("p2p",), ("all-gather",), CP_KINDS])),
        repeats_key_values=draw(st.booleans()),
        rank_orders=draw(some([RANK_ORDERS[:2], RANK_ORDERS])),
        fully_sharded=draw(st.booleans()),
        second_shard=draw(st.booleans()),
        replicas_once=draw(st.booleans()),
        uneven_stages=draw(st.booleans()),
        gathers_per_micro_batch=draw(st.booleans()),
        vocabulary=draw(some([("ends",), ("ends", "spread")])),
        vocabulary_in_flight=draw(some([0.0, 1.0, 2.0])),
        idle_gradients=draw(st.booleans()),
        gathered_logits=draw(st.booleans()),
        gathered_inputs=draw(st.booleans()),
        apart=draw(some([(), ("gate",), ("qkv", "gate")])),
        norm_gathers=draw(st.booleans()),
        flattened_gradients=draw(st.booleans()),
        gradients_sharded=draw(st.booleans()),
        partitioned_checkpoints=draw(st.booleans()),
        keeps=draw(some([(), ("gate", "norm", "key-values", "softmax")])),
        empty_ends=draw(st.booleans()),
        ends_as_layers=draw(st.booleans()),
        selective=draw(some(["attention", "operators"])),
        expert_imbalance=draw(some([1.0, 1.2])),
        expert_capacity=draw(some([None, None, 0.8, 1.25])),
        dispatch=draw(some(["allgather", "every-copy", "once-per-domain"])),
        dispatch_bytes=draw(some([1.0, 2.0])),
        shared_expert_overlap=draw(st.booleans()),
        fused_experts=draw(st.booleans()),
        kernels_per_local_expert=draw(some([0, 14])),
        graphs=draw(some([(), ("attn",), ("moe_router", "moe_preprocess")])),
        schedules=(*SCHEDULE_NAMES[:4], *draw(st.lists(some(SCHEDULE_NAMES[4:]), max_size=3, unique=True))),
        slack=draw(some([0.0, 0.05])),
        tensor_slack=draw(some([None, 0.2])),
        straggler=draw(some([0.0, 0.02])),
        blocking_launches=draw(some([False, False, True])),
        iteration_overhead=draw(some(["0 s", "3 ms"])),
        micro_batch_overhead=draw(some(["0 s", "50 us"])),
        optimizer=draw(some(["adam", "adam", "adam-8bit", "muon"])),
        loss=draw(some(["plain", "plain", "fused"])),
        loss_block=draw(some([0, 0, 256])),
        weight_bytes=draw(some([2, 4])),
        recompute_modules=draw(some([(), (), MODULES])),
    )


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


def toy_hybrid(pattern="M-M*M-ME", **changes):
    """A model of the letters of ``pattern``, with eight narrow Mamba-2 heads in eight groups."""
    sizes = {
        "hidden_size": 512,
        "num_heads": 8,
        "vocab_size": 8192,
        "seq_length": 1024,
        "gated_ffn": False,
        "position": "none",
        "layer_pattern": pattern,
        "mamba": {"num_heads": 8, "head_dim": 64, "state_size": 32, "num_groups": 8} if "M" in pattern else None,
        "moe": {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 512} if "E" in pattern else None,
    }
    return from_shape(sizes | changes)


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
