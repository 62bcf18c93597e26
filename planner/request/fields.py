"""The table of a question: every field of a request and every axis that it may pin, each in one row.

The request's readers of values, options of the command line, files of questions, studies, queues, the service, saved
answers and "without --optimizer adafactor" read it. Imports next to nothing, for a quick start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from hardware.errors import meant
from planner.errors import BadRequest

Kind = Literal[
    "text", "record", "count", "length", "number", "tokens", "time", "share", "price", "switch", "pairs", "changes",
    "counts",
]  # fmt: skip
"""How a value is written: text; the name, file or table of a record; a whole number; one of tokens, where 8k is 8,192;
a number; "300B"; "30s" (seconds); "10%"; dollars an hour, as "2.5" or "$2.50/h"; true or
false; a table or "name=value,..."; paths and their values; a list or "12,12,11,13"."""

LENGTH_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20}
"""How many tokens of a sequence the letter behind a number means to everybody: 8k is 8,192, 1M is 1,048,576."""

DEFAULT_CLUSTER: Final = "dgx-h100"
DEFAULT_STACK: Final = "megatron-core"
DEFAULT_TOP: Final = 5


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a question, or one axis."""

    name: str
    help: str
    takes: str | None = None
    """What stands for the value in the help of its option."""
    options: tuple[str, ...] = ()
    """Words of the command line without their dashes, the usual one first, where the name is not the only one."""
    kind: Kind = "text"
    default: Any = None
    """Of a request that leaves it out; None: nothing is said, or `resolve` finds it."""
    least: int = 1
    """Least count that its option takes."""
    heading: str = "Question"
    """Part of the help that lists its option."""
    also: tuple[str, ...] = ()
    """Further names in files."""
    axis: bool = False
    """Whether it is pinned, under ``pins``."""
    changes_stack: bool = False
    """Whether it changes the stack; unset ones leave it alone."""
    left_out: int = 0
    """Place among what an infeasible question is asked without, the least change first; 0: never."""
    varies: bool = True
    """Whether a study may vary it: it bears on the answer."""
    saved: bool = True
    """Whether the request of an answer says it."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the command line without their dashes."""
        return self.options or (self.name.replace("_", "-"),)


PINS: Final = "Pins and ranges: 8, 4,8, ..8 or 2..16"
"""The heading of all axes."""


_choice = partial(Field, changes_stack=True, left_out=1)


def _axis(name: str, explained: str, *others: str, kind: Kind = "text") -> Field:
    return Field(name, explained, options=others, kind=kind, heading=PINS, axis=True)


_ROWS: Final = (
    Field("model", "Catalogue name, TOML file or config.json.", "NAME|FILE", kind="record"),
    Field("gpus", "Number of accelerators.", kind="count"),
    Field("cluster", f"Machines (default: {DEFAULT_CLUSTER}).", "NAME|FILE", kind="record", default=DEFAULT_CLUSTER),
    Field("stack", f"Training framework (default: {DEFAULT_STACK}, on TPUs maxtext).", "NAME|FILE", kind="record",
          default=DEFAULT_STACK, left_out=7),
    Field("as_of", "Release of the stack of that month: 2024-12.", "MONTH", saved=False),
    Field("global_batch_size", "Sequences per iteration.", options=("global-batch", "global-batch-size"), kind="count",
          also=("global_batches",), left_out=8),
    Field("seq_length", "Tokens per sequence.", options=("seq-len", "seq-length"), kind="length",
          also=("seq_lens",), left_out=9),
    Field("tokens", "Training tokens, such as 300B.", "QUANTITY", kind="tokens"),
    Field("precision", "fp32, fp16, bf16, fp8, fp8-current, fp8-block, fp8-rowwise, int8, mxfp8, nvfp4.", "NAME",
          default="bf16", left_out=2),
    Field("objective", "time, mfu, cost, tokens-per-gpu-hour, memory or goodput.", "NAME", default="time"),
    Field("ties", "Among tied plans take a better validated one: never (fastest), within 0.1 % (close), always "
                  "(validated).",
          "NAME", default="close"),
    Field("stability", "What they take: detect=5 min, storage=100 GB/s, spare_nodes=8 ...", "FILE|NAME=VALUE,...",
          kind="pairs"),
    Field("framework", "Propose only what this exporter accepts (default: the stack's in a search, any for all).",
          "NAME", ("for",), left_out=6),
    _choice("optimizer", "adam, adam-8bit, lamb, sgd, adafactor, lion, muon ..., or a framework's word.", "NAME"),
    _choice("main_grads", "fp32 or bf16.", "NAME", ("main-grads", "main-grads-dtype")),
    _choice("main_params", "fp32 or fp16.", "NAME", ("main-params", "main-params-dtype")),
    _choice("fp8_param_gather", "Keep and gather weights in 8 bits.", kind="switch"),
    _choice("loss", "plain, or fused with the head's product.", "NAME"),
    _choice("loss_block", "Tokens whose logits exist at once.", "TOKENS", kind="count"),
    _choice("offload_fraction", "Share of the optimizer states to offload.", "SHARE", kind="share"),
    _choice("adapters",
            "Train adapters of this rank on frozen weights. Modules, joined by commas: linear_qkv, linear_proj, "
            "linear_fc1, linear_fc2, experts, all-linear, attention, q_proj ... (default: all but experts).",
            "RANK[:MODULES]", ("adapters", "lora")),
    _choice("base_precision", "Frozen weights under adapters: fp32, bf16, int8, nf4, fp4, nf4-double, fp4-double.",
            "NAME"),
    _choice("frozen_layers", "First layers that do not train, nor does the embedding.", kind="count"),
    _choice("frozen_embeddings", "The embedding, and a head tied to it, do not train.", kind="switch"),
    _choice("task", "pretrain, finetune, dpo, kto, orpo, simpo or reward; the batch counts samples, of pairs where "
            "these learn from pairs.", "NAME"),
    _choice("reference_model", "Of dpo and kto: copy, adapters-off or none (computed before).", "NAME"),
    _choice("document_length", "Mean tokens of packed documents, to which attention keeps.", "TOKENS", kind="count"),
    _choice("images_per_sample", "Images of a sample, which the model's vision tower encodes.", kind="count"),
    _choice("image_tokens", "Tokens of the sequence that stand for an image.", "TOKENS", kind="count"),
    _choice("train_tower", "The vision tower trains; else it is frozen.", kind="switch"),
    Field("changes",
          "One field of the stack or the model, such as stack.overlap.pp=0.1 or model.sliding_window=1024; or a "
          "feature as another stack has it, stack.pipeline-overlap=megascale. Again for more.",
          "PATH=VALUE", ("set",), kind="changes", also=("switches",), left_out=5),
    Field("memory_margin", "Usable memory to leave alone (default: what makes a plan that is found 80% sure to fit).",
          "SHARE", kind="share", left_out=4),
    Field("expert_capacity", "Tokens every expert computes over the mean, such as 1.25; more are dropped.", "FACTOR",
          ("expert-capacity", "moe-expert-capacity-factor"), kind="number", left_out=3),
    Field("expert_imbalance", "Tokens of the busiest expert rank over the mean, such as 1.3.", "FACTOR", kind="number",
          left_out=3),
    Field("price", "Dollars a GPU-hour, such as 2.50 (default: the catalogue's).", "DOLLARS", kind="price"),
    Field("time_limit", "Longest answer: 30s, 2min or plain seconds (default: none, effort counts).", "TIME",
          kind="time", saved=False),
    Field("top", f"Number of alternatives to show (default: {DEFAULT_TOP}).", kind="count", default=DEFAULT_TOP,
          least=0, heading="Answer", varies=False, saved=False),
    Field("reasons", "Leave out runners-up, why not and what helps: several times as fast.", kind="switch",
          default=True, heading="Answer", saved=False),
    Field("layers_per_stage", "Layers of each pipeline stage (default: the split that a search takes).", "N,N,...",
          kind="counts", heading=PINS, saved=False),
    Field("recomputed_per_stage", "Layers that each stage recomputes, where recompute is partial.", "N,N,...",
          kind="counts", heading=PINS, saved=False),
    _axis("tp", "Tensor parallel size.", "tp", "tensor-model-parallel-size"),
    _axis("cp", "Context parallel size.", "cp", "context-parallel-size"),
    _axis("cp_kind", "p2p, a2a, all-gather or a2a+p2p.", "cp-kind", "cp-comm-type"),
    _axis("pp", "Pipeline stages.", "pp", "pipeline-model-parallel-size"),
    _axis("vpp", "Model chunks per pipeline stage.", "vpp", "num-virtual-stages-per-pipeline-rank"),
    _axis("dp", "Data parallel size.", "dp", "data-parallel-size"),
    _axis("ep", "Expert parallel size.", "ep", "expert-model-parallel-size"),
    _axis("etp", "Tensor parallel size of an expert.", "etp", "expert-tensor-parallel-size"),
    _axis("zero_stage", "ZeRO stage, 0 to 3.", "zero", "zero-stage"),
    _axis("sharding_degree", "Ranks over which the ZeRO stage shards."),
    _axis("micro_batch_size", "Sequences per micro-batch and data-parallel rank.", "micro-batch", "micro-batch-size"),
    _axis("schedule", "Pipeline schedule; `plan list schedules` shows them."),
    _axis("sequence_parallel", "Split norms and dropout over the tensor ranks, or do not.", kind="switch"),
    _axis("recompute", "none, selective, partial or full.", "recompute", "recompute-granularity"),
    _axis("recompute_num_layers", "Layers that are recomputed together from one stored input, where all are (full)."),
    _axis("recompute_modules", "What selective recomputation repeats, such as layernorm,moe_act."),
    _axis("offload", "none, activations, optimizer, optimizer+parameters or any."),
    _axis("rank_order", "Which dimension varies fastest, such as tp-cp-ep-dp-pp."),
    _axis("vocabulary", "Embedding and head at the ends of the pipeline, or spread: ends, spread."),
)  # fmt: skip

FIELDS: Final[Mapping[str, Field]] = {row.name: row for row in _ROWS}
IN_STEPS: Final = ("steps", "local", "copies")
"""Apart from the axes, what pins of a file may say until the devices are known: micro-batches of a rank, sequences that
it takes at a time, groups of ranks that share a copy of the states (``planner.jobs.imported``)."""
QUESTION: Final = tuple(row.name for row in _ROWS if not row.axis)
"""Fields of a request besides its pins."""
PIN_AXES: Final = tuple(row.name for row in _ROWS if row.axis)
VARIED: Final = tuple(row.name for row in _ROWS if row.varies and not row.axis)
"""Fields of a request that bear on its answer."""
STACK_CHOICES: Final = tuple(row.name for row in _ROWS if row.changes_stack)
GIVEN_SPLIT: Final = tuple(row.name for row in _ROWS if row.kind == "counts")
"""Fields that say more of one strategy than its pins; a search chooses them."""
PATHS: Final = ("cluster.", "stack.", "model.")
"""How paths to single fields of the machines, the stack and the model begin."""
ALIASES: Final = {
    word.replace("-", "_"): row.name
    for row in _ROWS
    for word in (*row.words, *row.also)
    if word.replace("-", "_") != row.name
}
"""Words of the command line and of studies, and the name of the field or the axis."""

_KNOWN: Final = (*VARIED, *PIN_AXES)


def default_of(name: str) -> Any:
    """What a request has that leaves a field out."""
    return FIELDS[name].default


def optional_fields(*, same_job: bool = False) -> tuple[str, ...]:
    """Fields that an infeasible question is asked without, the least change first.

    Args:
        same_job: leave out those about what is trained.
    """
    rows = (row for row in _ROWS if row.left_out and not (same_job and row.name in {"global_batch_size", "seq_length"}))
    return tuple(row.name for row in sorted(rows, key=lambda row: row.left_out))


def own_name(word: str) -> str:
    """What a field or an axis is called in files, of whatever people call it."""
    plain = word.replace("-", "_")
    return ALIASES.get(plain, plain)


def by_own_name(table: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The table with the known fields under their own names.

    Raises:
        BadRequest: a field is there under two names.
    """
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for word, value in table.items():
        name = word if word in known or own_name(str(word)) not in known else own_name(str(word))
        if name in found:
            raise BadRequest(f"{said[name]} and {word} are the same option; give one of them")
        found[name], said[name] = value, str(word)
    return found


def field_of(name: str) -> str | None:
    """The field behind a name as a study writes it, plural or singular; None where there is none.

    Pins are called ``pins.tp``, fields of the machines, the stack and the model ``cluster.``, ``stack.`` or ``model.``
    and a path; a stack's switch goes by its name alone too.
    """
    short = name.removeprefix("pins.").replace("-", "_")
    for spelling in (own_name(short), own_name(short.removesuffix("s"))):
        if spelling in PIN_AXES:
            return f"pins.{spelling}"
        if spelling in _KNOWN and not name.startswith("pins."):
            return spelling
    from costmodels.stack.combined import SWITCHES  # loads pydantic, which --help does without

    if short in SWITCHES:
        return f"stack.{short}"
    return name if name.startswith(PATHS) else None


def apart(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields, and pins by their axes, of values of which pins are called ``pins.tp``."""
    pins = {name.removeprefix("pins."): value for name, value in values.items() if name.startswith("pins.")}
    return {name: value for name, value in values.items() if not name.startswith("pins.")}, pins


def as_document(values: Mapping[str, Any]) -> dict[str, Any]:
    """A question as a file has it, its pins in a table."""
    fields, pins = apart(values)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return plain | ({"pins": pins} if pins else {})


def no_such_field(name: str, pins: str, known: Iterable[str] = (*QUESTION, "pins")) -> str:
    """What to say about a name that no question has: where an axis belongs, or what may be meant.

    ``pins`` is how the table of axes is called there, ``known`` the fields that there are.
    """
    axis, every = own_name(name), tuple(known)
    if axis in PIN_AXES:
        return f"there is no field {name!r}; it belongs under {pins}: {axis} = ..."
    near = meant(name, (*every, *PIN_AXES), most=2, otherwise=f"there are {', '.join(every)}")
    return f"there is no field {name!r:.60}; {f'did you mean {axis}?' if axis in every else near}"


def unknown_field(name: str, also: Iterable[str] = ()) -> str:
    """What to say about a name that means nothing in a study."""
    plurals = {f"{field}s" for field in ("model", "cluster", "stack")}
    known = {*_KNOWN, *ALIASES, *plurals, *also}
    every = f"there are {', '.join((*VARIED, *also))} and the pins {', '.join(PIN_AXES)}"
    return f"there is no field {name!r}; {meant(name.removeprefix('pins.'), known, most=2, otherwise=every)}"
