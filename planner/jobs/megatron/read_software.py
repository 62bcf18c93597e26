"""What Megatron-LM's arguments say of the software: fields of the stack that they decide, and what no field says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from costmodels.stack.stack import stack
from planner.errors import BadRequest
from planner.jobs.megatron.dialect import Dialect
from planner.jobs.megatron.options import FLASH, NATIVE_LOSS, STANDS_FOR, SWITCHED, TE_LOSS, UNFUSED
from planner.jobs.options import Arguments
from planner.request.overrides import known_path

_GRAPHED: Final = ("attn", "mamba", "moe", "moe_router", "moe_preprocess")
DROPOUT: Final = 0.1
"""What is dropped where no option says it (transformer_config.py: attention_dropout, hidden_dropout)."""
_DROPOUTS: Final = ("attention_dropout", "hidden_dropout")
_IN_STEP: Final = "no-async-tensor-model-parallel-allreduce"
"""Of no effect where there is no such all-reduce, as with sequence parallelism."""


def stack_changes(at: Arguments, dialect: Dialect, environment: Mapping[str, str]) -> dict[str, Any]:
    """Fields of the stack that the arguments decide; of those that are not given, what the stack has otherwise."""
    said: dict[str, Any] = {}
    sums = stack(dialect.stack).gradients.accumulate_traffic > 0  # the stack's own gradients are added up apart
    for flag, fields in STANDS_FOR.items():
        said |= fields if at.given(flag) and not (sums and flag == "no_gradient_accumulation_fusion") else {}
    said |= _attention(at, environment) | _loss(at) | _graphs(at)
    if at.given("use_megatron_fsdp") or at.given("use_torch_fsdp2"):  # stages that the distributed optimizer has not
        said |= {"stack.supports.zero_stages": [0, 1, 2, 3]}
        said |= {"stack.sharding.state_copies": "none"} if at.given("use_megatron_fsdp") else {}
    said |= _environment(environment)
    said |= {"stack.fused_elementwise": False} if all(unfused(at)) else {}
    if at.given("bucket_size"):
        said |= {"stack.bucket_size": at("bucket_size"), "stack.sharding.bucket_per_rank": 0}
    left: dict[str, Any] = {f"stack.{switch}": False for flag, switch in SWITCHED.items() if not at.given(flag)}
    said |= {f"stack.{switch}": True for flag, switch in SWITCHED.items() if at.given(flag)}
    dropped = max(DROPOUT if _unsaid(at, field) else at.real(field) or 0.0 for field in _DROPOUTS)
    (left if all(_unsaid(at, field) for field in _DROPOUTS) else said)["stack.dropout"] = dropped > 0
    if at.given("num_experts"):
        left |= {"stack.dispatcher": _dispatcher(at)}
    for option, fields in dialect.stands_for.items():
        left |= fields if option in at and not (option == _IN_STEP and at.given("sequence_parallel")) else {}
    return {**_differing(left, dialect.stack), **said}


def _differing(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Fields that a stack has otherwise."""
    from costmodels.stack.combined import COMBINED

    known = stack(name)
    found: dict[str, Any] = {}
    for path, value in fields.items():
        field = known_path(path).removeprefix("stack.")
        place = field if "." in field else f"switches.{field}"
        has = COMBINED[field].read(known) if field in COMBINED else known.value(place)
        found |= {path: value} if has != value else {}
    return found


def _dispatcher(at: Arguments) -> str:
    """How tokens reach experts; the older flag stands for the flexible one's first backend."""
    flexible = at.given("moe_enable_deepep") or at.text("dispatch") == "flex"
    if not flexible:
        return str(at("dispatch"))
    return "hybridep" if at("flex_backend") == "hybridep" else "deepep"


def _unsaid(at: Arguments, field: str) -> bool:
    """Whether a value is not there, or a variable that nothing sets."""
    return not at.given(field) or at.text(field).startswith("$")


def local(at: Arguments) -> bool:
    """Whether Megatron-Core's own modules run, none of Transformer Engine's (models/backends.py: LocalSpecProvider)."""
    return at.text("transformer_impl") == "local"


def _attention(at: Arguments, environment: Mapping[str, str]) -> dict[str, Any]:
    """Attention kernels, by option or by Transformer Engine's variables."""
    backend = at.text("attention")
    flash, fused = environment.get("NVTE_FLASH_ATTN"), environment.get("NVTE_FUSED_ATTN")
    own, asked = local(at), at.given("use_flash_attn")
    if backend in {"unfused", "local"} or (own and not asked) or (flash, fused) == ("0", "0"):
        return UNFUSED
    if backend == "flash" or at.given("flash_version") or (own and asked):
        return {"stack.attention_backend": FLASH[at.text("flash_version") or "2"]}
    return {"stack.attention_backend": FLASH["2"]} if backend in {"", "auto"} and fused == "0" else {}


def _loss(at: Arguments) -> dict[str, Any]:
    if not at.given("cross_entropy_loss_fusion"):
        return {}
    moved = {"native": NATIVE_LOSS, "te": TE_LOSS}.get(at("loss"))
    return {"stack.logits.cross_entropy_traffic": moved} if moved else {"stack.loss": "fused"}


def _graphs(at: Arguments) -> dict[str, Any]:
    """Graphs of whole layers, or of an iteration, leave nothing to the host; others their parts."""
    on = at.given("enable_cuda_graph") or at.given("external_cuda_graph") or at("graphs") not in {None, "none"}
    if not on:
        return {}
    scope = [*at.words("cuda_graph_scope"), *at.words("cuda_graph_modules")]
    words = {part for word in scope for part in word.replace(",", " ").split()}
    if at("graphs") == "full_iteration" or not words or words & {"full", "full_iteration"}:
        return {"stack.cuda_graphs": True}
    return {"stack.cuda_graph_scope": [part for part in _GRAPHED if part in words]}


def unfused(at: Arguments) -> tuple[bool, bool]:
    """Whether the activation, and the residual with its bias and dropout, run as operations of their own."""
    activation = "no_bias_swiglu_fusion" if at.given("swiglu") else "no_bias_gelu_fusion"
    return at.given(activation), at.given("no_bias_dropout_fusion")


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables that PyTorch and CUDA read."""
    found: dict[str, Any] = {}
    allocator = environment.get("PYTORCH_CUDA_ALLOC_CONF", "") + environment.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments" in allocator:
        found["stack.expandable_segments"] = "expandable_segments:true" in allocator.lower()
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found["stack.launch_blocking"] = True
    return found


LOOPED: Final = (
    "no --moe-grouped-gemm (or none under --transformer-impl local): the experts of a rank run one after another "
    "(SequentialMLP). Grouped GEMM is priced, so the run takes longer, most with many experts per rank"
)
"""What Megatron-Core builds then (extensions/transformer_engine_spec_provider.py: grouped_mlp_modules)."""
_SORTED: Final = "no --moe-permute-fusion: tokens are sorted by several kernels; one is priced, so experts take longer"


def not_priced(at: Arguments, dialect: Dialect) -> Iterator[str]:
    """What is said and no price has, with what it does."""
    for name, effect in dialect.unpriced.items():
        if name in at:
            yield f"--{name} is not priced: {effect}"
    one, other = at("moments"), at("second_moments")
    if one != other:
        yield f"--exp-avg-sq-dtype {other} is priced as --exp-avg-dtype {one}: both moments have one format"
    yield from _experts_not_priced(at) if at.given("num_experts") else ()
    if any(unfused(at)) and not all(unfused(at)):
        yield "activation or residual is not fused; both are priced as fused, so layers take a little longer"
    if at.text("flash_version") == "4":
        yield "--flash-attention-version 4 is priced as 3: attention on Blackwell is faster than that"
    if at.given("cpu_offloading") and not at("offloaded_layers"):
        yield "--cpu-offloading without --cpu-offloading-num-layers offloads no layer"


def _experts_not_priced(at: Arguments) -> Iterator[str]:
    if not at.given("moe_grouped_gemm") or local(at):
        yield LOOPED
    if not at.given("moe_permute_fusion"):
        yield _SORTED
    if at.text("flex_backend") == "ncclep":
        yield "--moe-flex-dispatcher-backend ncclep is priced as deepep"


def assumed(at: Arguments) -> Iterator[str]:
    """What the arguments leave to Megatron-LM's own default, which is priced."""
    left = [f"--{at.word_of(field)}" for field in _DROPOUTS if _unsaid(at, field)]
    if left:
        yield f"{' and '.join(left)} not given; {DROPOUT:g} is priced, Megatron-LM's default (0.0 switches dropout off)"
    if at.text("attention") == "flash" and not at.given("flash_version"):
        yield "--attention-backend flash is priced as FlashAttention 2; --set attention_backend=flash-3 is version 3"
    if not at.given("overlap_grad_reduce"):
        yield "--overlap-grad-reduce not given; gradients are reduced after the backward pass, without overlap"
    if at.given("use_distributed_optimizer") and not at.given("overlap_param_gather"):
        yield "--overlap-param-gather not given; parameters are gathered before the forward pass, without overlap"
    if at.given("num_experts") and not (at.given("dispatch") or at.given("moe_enable_deepep")):
        yield "--moe-token-dispatcher-type not given; allgather is priced, Megatron-LM's default"


def check_priced(at: Arguments) -> None:
    """Refuse what cannot be priced together."""
    moved = [field for field in ("fine_grained_activation_offloading", "cpu_offloading") if at.given(field)]
    if at.given("optimizer_cpu_offload") and moved:
        raise BadRequest(f"--optimizer-cpu-offload and --{at.word_of(moved[0])} are not priced together")
