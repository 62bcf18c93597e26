"""A model's sizes and kinds in the words of measured runs, before they are read as those of a model file are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from costmodels.model.model import BadModel, Model, from_shape
from costmodels.model.parameters import parameters
from run_words import heard as re

POSITIONS: Final = (
    (r"nope|none|sinusoid|relative", "none"),
    (r"rope|rotary|yarn", "rotary"),
    (r"learn|absolute", "learned"),
    (r"alibi", "alibi"),
)
"""First match of the words; waves that are added to what the embedding returns cost nothing that is counted here."""
NORMS: Final = ((r"rms", "rmsnorm"), (r"layer", "layernorm"))
ACTIVATIONS: Final = (
    (r"swiglu", "swiglu"),
    (r"geglu", "geglu"),
    (r"reglu", "reglu"),
    (r"squared[ _-]?relu|relu[ _-]?(2|squared)|sqrelu", "squared_relu"),
    (r"relu", "relu"),
    (r"gelu", "gelu"),
    (r"silu|swish", "silu"),
)
KINDS: Final = (
    (r"\bmoe\b|mixture[ -]of[ -]experts|\bsparse\b", "moe"),
    (r"\bdense\b|\bdecoder|\btransformer|\b(gpt|llama|bert|encoder)\b", "dense"),
)
REMARKS: Final = frozenset(
    ("kind", "params_b", "attention", "full_model_layers", "params_reduced_model", "dropped_capacity_factor")
)
"""What a run says of its model besides the sizes: remarks, and sizes of an unreduced model."""
HYBRIDS: Final = {"dense-hybrid-mamba2": False, "moe-hybrid-mamba2": True}
"""Kinds of model with Mamba-2 mixers, and whether they have experts."""
PADDED: Final = 51_200
"""Megatron-LM's GPT-2 tokens, padded."""
GATES: Final = {"gelu": "geglu", "silu": "swiglu", "relu": "reglu"}
"""Of a network that is said to be gated, and named by the branch that is activated."""


def as_worded(shape: Mapping[str, Any]) -> dict[str, Any]:
    """The description with kinds under their own names and whole numbers without a point."""
    fields = {name: _whole(value) for name, value in shape.items()}
    if isinstance(kind := fields.get("kind"), str):
        fields["kind"] = _kind(kind.lower())
    for field, names in (("position", POSITIONS), ("norm", NORMS), ("activation", ACTIVATIONS)):
        if isinstance(word := fields.get(field), str):
            fields[field] = next((name for words, name in names if re.search(words, word.lower())), word)
    if fields.get("gated_ffn") is True:
        fields["activation"] = GATES.get(str(fields.get("activation")), fields.get("activation"))
    return fields


def _kind(said: str) -> str:
    """A kind of model under its own name; a hybrid's, and what nothing is known of, as it is."""
    if re.search(r"mamba|hybrid|ssm|state[ -]space|rwkv|diffusion|vision|multimodal", said):
        return said
    return next((kind for words, kind in KINDS if re.search(words, said)), said)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def from_run(shape: Mapping[str, Any]) -> Model:
    """The model of a measured run, whose description is often shorter than a model's.

    An unsaid vocabulary is ``PADDED``, and where the description does not say whether the head shares the embedding,
    ``params_b`` (billions of parameters) decides if the usual answer is more than 3 % off and the other is nearer.

    Raises:
        BadModel: as ``from_shape``, or the ``kind`` contradicts the sizes.
    """
    said = {name: value for name, value in shape.items() if name not in REMARKS}
    model = from_shape(said | ({"vocab_size": PADDED} if said.get("vocab_size") is None else {}))
    _check_kind(shape.get("kind"), model)
    billions = shape.get("params_b")
    if said.get("tied_embeddings") is not None or not isinstance(billions, int | float) or billions <= 0:
        return model
    other = model.model_copy(update={"tied_embeddings": not model.tied_embeddings})
    miss, other_miss = (abs(parameters(each) / (1e9 * billions) - 1) for each in (model, other))
    return other if miss > 0.03 and other_miss < miss else model


def _check_kind(kind: object, model: Model) -> None:
    experts, mixers = model.moe is not None, model.mamba is not None
    fits = {None: True, "moe": experts, "dense": not experts}
    fits |= {name: mixers and experts == has for name, has in HYBRIDS.items()}
    if str(kind) not in map(str, fits):
        raise BadModel(f"model {model.name!r} is of kind {kind!r}; known are dense, moe, {', '.join(HYBRIDS)}")
    if not fits[kind if kind is None else str(kind)]:
        raise BadModel(f"model {model.name!r}: its sizes are not those of a model of kind {kind!r}")
