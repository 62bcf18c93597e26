"""The strategy of a measured run, by what it says and by what its stack usually does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from costmodels.names import CP_KINDS, SCHEDULE_NAMES, Recompute
from costmodels.stack.stack import Stack
from costmodels.strategy import Strategies, strategies
from run_words import heard as re
from run_words.machines import Unpriceable

Row = Mapping[str, Any]


CONTEXT_WORDS: tuple[tuple[str, str], ...] = (
    (r"hierarchical|usp|hybrid|2d-att|loong", "a2a+p2p"),
    (r"(ring|p2p).*(ulysses|head-?parallel)|(ulysses|head-?parallel).*(ring|p2p)", "a2a+p2p"),
    (r"ulysses|all-?to-?all|a2a|head-?parallel", "a2a"),
    (r"all-?gather|llama-?3", "all-gather"),
    (r"ring|zig-?zag|striped|p2p|megatron-cp|burst|dist-?flash", "p2p"),
)
"""First match of papers' and programs' words gives a kind of ``costmodels.names.CP_KINDS``: ring attention
[Liu23], Ulysses [Jacobs23], the gather of Llama 3 and the two together [Fang24]."""


UNSAID_KIND = r"te|transformer-engine|context-parallel(ism)?|cp|yes|true"
"""Words that say no more of context parallelism than that there is some."""


FOLDS = "megatron"
"""Stacks whose experts are split by the ranks of tensor parallelism unless said otherwise: Megatron-Core's
--expert-tensor-parallel-size is --tensor-model-parallel-size by default, and there was nothing else before it had the
flag. NeMo's recipes set it themselves."""


SHARDS_BF16 = r"^(deepspeed|megatron-deepspeed|gpt-neox)$"
"""Stacks whose optimizer for bf16 splits its states over data ranks at any stage (``BF16_Optimizer``, in DeepSpeed
since 2022) [DeepSpeed]."""


def as_ranked(row: Row, notes: list[str]) -> Row:
    """The run with the tensor or the pipeline degree that it alone leaves out, as the others make up its GPUs."""
    plan = row["strategy"]
    unsaid = [name for name in ("tp", "pp") if plan.get(name) is None]
    if len(unsaid) != 1 or not plan.get("dp") or not plan.get("gpus"):
        return row
    rest = math.prod(int(plan.get(name) or 1) for name in ("tp", "cp", "pp", "dp"))
    degree, left = divmod(int(plan["gpus"]), rest)
    if left or degree <= 1:
        return row
    notes.append(f"{unsaid[0]} {degree}, which makes up {plan['gpus']} gpus with the other degrees")
    return {**row, "strategy": {**plan, unsaid[0]: degree}}


def as_batched(row: Row, notes: list[str]) -> Row:
    """The run with the batch, or the micro-batch, that it alone leaves out, from its number of micro-batches.

    A batch may also be given in tokens.
    """
    plan, seq = row["strategy"], row["model"].get("seq_length")
    each, whole, many = (plan.get(name) for name in ("micro_batch_size", "global_batch_size", "num_microbatches"))
    ranks = plan.get("dp") or (plan.get("gpus") or 0) // math.prod(int(plan.get(n) or 1) for n in ("tp", "cp", "pp"))
    found: dict[str, Any] = {}
    if whole is None and (tokens := plan.get("tokens_per_iteration")) and seq:
        found["global_batch_size"] = whole = max(round(float(tokens) / seq), 1)
    if whole is None and many and each and ranks:
        found["global_batch_size"] = round(many * each * ranks)
    if each is None and many and whole and ranks and not whole % (many * ranks):
        found["micro_batch_size"] = whole // (many * ranks)
    notes += [f"{name} {value:g}, by the other sizes of its batch" for name, value in found.items()]
    return {**row, "strategy": {**plan, **found}} if found else row


CHUNKS = r"\bv(?:pp?)?(?: size)? ?[=:]? ?(\d)\b|\b(\d) (?:virtual|model chunks|chunks)"
"""How a schedule's words count the chunks of a stage."""


def _chunks(plan: Row, pp: int, notes: list[str]) -> int:
    """Chunks of a stage as said; of a schedule that needs several and says no number, two."""
    said = re.sub(r"[_-]+", " ", str(plan.get("schedule") or "").lower())
    if plan.get("vpp") is not None or pp == 1 or not re.search(r"(?<!non )\binter ?leav|\bvirtual|\bloop", said):
        return int(plan.get("vpp") or 1)
    counted = re.search(CHUNKS, said)
    chunks = int(counted[1] or counted[2]) if counted else 2
    notes.append(f"{chunks} chunks a stage, {'by the schedule' if counted else 'the fewest that interleave, assumed'}")
    return chunks


def strategy_of(plan: Row, chosen: Stack, notes: list[str], *, experts: bool = False, node: int = 8) -> Strategies:
    """The strategy as described, a row of its own; what the run leaves open is what its stack usually does.

    Args:
        plan: the run's words on it.
        chosen: its stack.
        notes: what is assumed goes here.
        experts: whether its model has them.
        node: GPUs of a node.
    """
    tp, cp, pp, ep = (int(plan.get(name) or 1) for name in ("tp", "cp", "pp", "ep"))
    vpp = _chunks(plan, pp, notes)
    dp = int(plan.get("dp") or int(plan["gpus"]) // (tp * cp * pp))
    etp = int(plan.get("etp") or 1)
    if experts and plan.get("etp") is None and chosen.name.startswith(FOLDS) and (cp * dp) % ep == 0 and tp > 1:
        notes.append(f"experts split over the {tp} tensor ranks assumed")
        etp = tp
    micro = plan.get("micro_batch_size")
    if micro is None:
        notes.append("micro-batch size 1 assumed")
        micro = 1
    batch, each = int(plan["global_batch_size"]), float(micro) * dp
    batches = max(round(batch / each), 1)
    if batch % each:
        whole = f"a batch of {batch} is no whole number of micro-batches of {micro} x dp {dp}"
        if batch < each:
            raise Unpriceable(f"strategy: {whole}; {each:g} would be one")
        notes.append(f"{whole}: {batches * each:g} is priced")
    zero = _zero_stage(plan, chosen, notes, once=batches == 1 or pp > 1)
    return strategies(
        tp=tp,
        cp=cp,
        cp_kind=_context(plan, cp, chosen, notes),
        pp=pp,
        vpp=vpp,
        dp=dp,
        ep=ep,
        etp=etp,
        zero_stage=zero,
        sharding_degree=_sharding(plan, int(zero), dp * cp, max(node // tp, 1), notes),
        micro_batch_size=micro,
        num_microbatches=batches,
        schedule=_schedule(plan, pp, vpp),
        sequence_parallel=_sequence_parallel(plan, tp, chosen, notes),
        recompute=int(_recompute(plan, chosen, notes)),
        rank_order=0,
        vocabulary=int(pp > 1 and chosen.supports.vocabulary == ("spread",)),
    )


def _zero_stage(plan: Row, chosen: Stack, notes: list[str], *, once: bool) -> Any:
    """The stage as said; MindSpore's optimizer parallelism scatters gradients as they are made, ``once`` an iteration.

    What several micro-batches add up is whole (``gradient_accumulation_shard: False`` of all its configurations).
    """
    zero = plan.get("zero_stage")
    if zero == 1 and chosen.name == "mindformers" and once:
        notes.append("ZeRO stage 2: whole graphs free gradients as they reduce them")
        return 2
    if zero is None:
        zero = _usual_stage(plan, chosen)
        notes.append(f"ZeRO stage {zero} assumed")
    if zero == 0 and re.search(SHARDS_BF16, chosen.name) and plan.get("precision") == "bf16":
        notes.append("ZeRO stage 1: DeepSpeed shards the states of a bf16 optimizer at stage 0 too")
        return 1
    if int(zero) not in range(4):
        raise Unpriceable(f"strategy.zero_stage: there is no stage {zero!r:.40}; 0, 1, 2 and 3 are")
    return zero


SHARDS_FULLY = r"^(fsdp|torchtitan)$"
"""Stacks that shard parameters unless they are asked not to."""
FLAGGED = r"^megatron-(lm-|core$)"
"""Stacks of Megatron-LM, which shards states where ``--use-distributed-optimizer`` is given."""


def _usual_stage(plan: Row, chosen: Stack) -> int:
    """The stage that a run's words on sharding name, else what its stack usually does."""
    said = str(plan.get("sharding_note") or "").lower()
    if named := re.search(r"(?:zero|stage)[ -]?([0-3])\b", said):
        return int(named[1])
    if re.search(r"fsdp|hsdp|fully[ -]sharded|full_shard", said) or re.search(SHARDS_FULLY, chosen.name):
        return max(chosen.supports.zero_stages)
    if re.search(FLAGGED, chosen.name) and not re.search(r"distributed[ _-]optimizer", said):
        return 0
    return max(stage for stage in chosen.supports.zero_stages if stage <= 1)


def _sequence_parallel(plan: Row, tp: int, chosen: Stack, notes: list[str]) -> int:
    split = plan.get("sequence_parallel")
    if int(plan.get("pp") or 1) > 1 and "head" in chosen.exchange.whole_vocabulary:
        notes.append("no sequence parallelism, as its framework has none under a pipeline")
        return 0
    if split is None:
        split = chosen.supports.sequence_parallel and tp > 1
        notes.append(f"sequence parallelism {'on' if split else 'off'} assumed")
    return int(bool(split))


def _context(plan: Row, cp: int, chosen: Stack, notes: list[str]) -> int:
    """The stated kind of context parallelism, else the stack's usual one."""
    if cp == 1:
        return 0
    kind = plan.get("cp_kind")
    if kind is None:
        kind = chosen.supports.cp_kinds[0]
        notes.append(f"context parallelism of kind {kind} assumed")
    said = re.sub(r"[\s_]+", "-", str(kind).lower())
    known = said if said in CP_KINDS else next((name for words, name in CONTEXT_WORDS if re.search(words, said)), said)
    if re.fullmatch(UNSAID_KIND, said):
        known = chosen.supports.cp_kinds[0]
        notes.append(f"context parallelism of kind {known} assumed")
    if known not in CP_KINDS:
        raise Unpriceable(f"context parallelism of kind {kind} is not priced yet")
    return CP_KINDS.index(known)


def _recompute(plan: Row, chosen: Stack, notes: list[str]) -> Recompute:
    """The stated kind of recomputation, else the stack's usual one."""
    said = plan.get("recompute")
    said = str(_usual_recompute(chosen, notes) if said in (None, "") else said).upper()
    if said not in Recompute.__members__:
        known = ", ".join(Recompute.__members__).lower()
        raise Unpriceable(f"strategy.recompute: {plan['recompute']!r:.40} is unknown; {known} are known")
    return Recompute[said]


def _usual_recompute(chosen: Stack, notes: list[str]) -> str:
    usual = "selective" if chosen.switches.attention_backend == ("unfused",) else "none"
    notes.append(f"recomputation {usual} assumed")
    return usual


HYBRID = r"hsdp|hybrid[ _-]shard"
WITHIN_NODES = r"\bshard\w* (with)?in ((a|one|each|every|the) )?nodes?\b|\bintra-?node shard|\bshard\w* intra-?node\b"
"""Words for states that ranks of one node share, and nodes repeat."""
SHARDED_OVER = (
    r"\bshard\w*(?: groups?| degrees?| size)?(?: of| over| across|[:=]) ?"
    r"(\d+)(?: (gpus|ranks|devices|nodes))?(?![.\w-])"
    r"|\b(?:fsdp|dp_shard|\w*shard_(?:degree|size))[=:-] ?(\d+)(?![.\w])"
)
"""Words for states that so many ranks share, or the ranks of so many nodes."""


def _sharding(plan: Row, zero: int, ranks: int, node: int, notes: list[str]) -> int:
    if zero == 0:
        return 1
    degree, said = int(plan.get("sharding_degree") or 0), str(plan.get("sharding_note") or "").lower()
    if not degree and ranks % node == 0 and re.search(WITHIN_NODES, said):
        notes.append(f"states sharded over the {node} ranks of a node, by the words")
        return node
    if not degree and (told := re.search(SHARDED_OVER, said)):
        some = int(told[1] or told[3]) * (node if told[2] == "nodes" else 1)
        if 1 < some <= ranks and ranks % some == 0:
            notes.append(f"states sharded over {some} ranks, by the words")
            return some
    if not degree and re.search(HYBRID, said):
        notes.append(f"states sharded over all {ranks} ranks assumed")
    degree = degree or ranks
    return degree if degree > 1 and ranks % degree == 0 else ranks


SCHEDULE_WORDS: tuple[tuple[str, str], ...] = (
    (r"inter-?leaved", "interleaved-1f1b"),
    (r"afab|f-?then-?b|all-forward|gpipe|fill-?(and-?)?drain", "gpipe"),
    (r"^1f1b|pipedream-?flush|dapple", "1f1b"),
    (r"zb-?h1|zero-?bubble-h1", "zb-1p"),
    (r"zb-?h2|zero-?bubble-h2", "zb-2p"),
    (r"zb-?v", "zb-v"),
    (r"zero-?bubble", "zb-1p"),
    (r"dual-?pipe-?v", "dualpipe-v"),
    (r"breadth|bfs", "breadth-first"),
    (r"virtual|loop", "interleaved-1f1b"),
    (r"no-pipe|n/a", "none"),
)
"""First match of what programs call a schedule gives ours, where a run's word is none of them."""


def _schedule(plan: Row, pp: int, vpp: int) -> int:
    said = re.sub(r"[\s_]+", "-", str(plan.get("schedule") or "1f1b").lower())
    known = (*SCHEDULE_NAMES, "none")
    name = said if said in known else next((ours for word, ours in SCHEDULE_WORDS if re.search(word, said)), said)
    if name in ("none", "1f1b", "interleaved-1f1b"):
        name = "interleaved-1f1b" if vpp > 1 else "1f1b"
    if name not in SCHEDULE_NAMES:
        raise Unpriceable(f"schedule {plan.get('schedule')} is not priced yet")
    return SCHEDULE_NAMES.index(name) if pp > 1 else 0
