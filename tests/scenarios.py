"""Small scenarios with round constants, and random valid rows."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from costmodels.model.model import Experts, LatentAttention, checked, from_shape
from costmodels.names import RANK_ORDERS, SCHEDULE_NAMES, Recompute
from costmodels.pipeline.schedules import SCHEDULES
from costmodels.scenario import Scenario
from costmodels.stack.stack import GROUPS, PATHS, Stack
from costmodels.strategy import strategies
from hardware.kernels import AttentionFit, GemmFit, GroupedFit, Kernels, MemoryBoundFit
from hardware.links import Link, Tier
from hardware.records import Accelerator, Cluster, NodeGroup

HOMES = {path.partition(".")[2]: path.partition(".")[0] for path in PATHS}
"""The group of each field of a stack; no two are called alike."""
assert len(HOMES) == len(PATHS)
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
    lone=None,
    slowdown=None,
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
        lone_bandwidth=None if lone is None else f"{lone!r} B/s",
        point_to_point=1.0,
        slowdown=slowdown,
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
    """An accelerator that reaches its peak in every kernel by default."""
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
        "attention_backend": ("flash-2",),
        "launch_time": "0 s",
        "reserved": "0 B",
        "fragmentation": 0.0,
        "expert_imbalance": 1.0,
    }
    return Stack(**grouped(plain | changes))


def grouped(fields):
    """Fields of a stack by their names alone, each in its group; whole groups as they are."""
    found = {}
    for name, value in fields.items():
        if name in GROUPS:
            inside = value if isinstance(value, Mapping) else value.model_dump(exclude_unset=True)
            found.setdefault(name, {}).update(inside)
        elif (group := HOMES.get(name)) is None:
            found[name] = value
        else:
            found.setdefault(group, {})[name] = value
    return found


def dense_model(**sizes):
    """A model from some sizes, with usual values for all others."""
    return from_shape({"vocab_size": 51200, "seq_length": 2048} | sizes)


def toy_model(**changes):
    """A GPT of 8 layers; every tensor degree up to 8 divides it."""
    sizes = {"num_layers": 8, "hidden_size": 1024, "num_heads": 8, "vocab_size": 8192, "seq_length": 1024}
    return dense_model(**(sizes | changes))


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
    room = [v for v in fits if stack.supports.uneven_stages or model.num_layers % (pp * v) == 0]
    if not room:
        return None
    vpp = int(chance.choice(room)) if pp > 1 else 1
    known = [
        name for name in stack.supports.schedules if not (stack.switches.adapters and SCHEDULES[name].splits_backward)
    ]
    runs = [name for name in known if (pp == 1) == (name == "none") and SCHEDULES[name].allowed(pp, batches, vpp)]
    if not runs:
        return None
    if not stack.supports.uneven_stages and model.num_layers % (pp * vpp):
        return None
    stages = [z for z in stack.supports.zero_stages if z == 0 or (dp * cp > 1 and (z == 1 or pp == 1))]
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
        "vocabulary": int(pp > 1 and "spread" in stack.supports.vocabulary and chance.random() < 0.5),
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
