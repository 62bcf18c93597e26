"""Hugging Face `config.json` descriptions read as `Model`.

`huggingface_families.toml` says what a family is made of and under which names its files say so;
`huggingface_table` reads it. Families with another kind of layer are refused by name rather than approximated.
"""

from collections.abc import Mapping

from costmodels.model.huggingface_config import Config, Entries, Fields, UnsupportedFamily, model_type, refuse_experts
from costmodels.model.huggingface_table import (
    defaults,
    families,
    not_understood,
    own_names,
    read_by_table,
    refuse_mechanism,
    table_config,
)
from costmodels.model.huggingface_towers import left_out_parts, tower_of
from costmodels.model.model import Model, checked
from hardware.errors import meant

CONFIGURATION = "Hugging Face configuration"
"""Source of such models; what else the file describes follows."""
TEXT_PARTS = {"llama4": "llama4_text", "gemma3": "gemma3_text", "minimax_m3_vl": "minimax_m3", "step3p7": "step3p5"}
"""Families of whose decoders the files name another family than ours, or none."""


def from_config(config: Mapping[str, object], *, name: str = "", seq_length: int | None = None) -> Model:
    """The model that a Hugging Face `config.json` describes.

    The default sequence length is the configuration's reach of positions, at most 8192 tokens: a
    configuration does not say at which length the model was trained.

    Args:
        config: The parsed file.
        name: Name of the model; otherwise the configuration's `_name_or_path` or its family.
        seq_length: Tokens of the sequence that is asked for; positions reach as far where the configuration
            does not say how far.

    Raises:
        UnsupportedFamily: The family is not in the table, or has a mechanism that is not priced.
        BadModel: A field is missing, of the wrong type, or contradicts another one. One line.
    """
    config, spoken = listening_part(_named(config))
    without, whole = " and ".join(filter(None, (left_out(config), spoken))), config
    refuse_mechanism(config, name)
    config = text_part(config)
    family = model_type(config, families())
    refuse_mechanism({"model_type": family}, name)
    if family not in families():
        read = read_families()
        others = f"{len(read)} families of decoders can be read, such as llama, qwen3 and deepseek_v3"
        near = meant(family, read, otherwise=others)
        otherwise = "; or write its sizes into a TOML file, such as examples/my-model.toml"
        raise UnsupportedFamily(f"Hugging Face model family {family!r} is not supported; {near}{otherwise}")
    label = name or str(config.get("_name_or_path") or family)
    entries = Entries(table_config(config, family, nested=isinstance(whole.get("text_config"), Mapping)))
    reader = Config(entries, label, seq_length, own_names(family))
    reader.few_layers()
    vocab_size = reader.count("vocab_size")
    described = read_by_table(reader, family)
    if "moe" not in described and "unused_experts" not in families()[family]:
        refuse_experts(reader, family)
    if strange := not_understood(entries, family):
        without = " and ".join(filter(None, (without, f"unknown effect of {', '.join(strange)}")))
    fields: Fields = {
        "name": label,
        "title": label,
        "family": family,
        "source": f"{CONFIGURATION}{without and f' without its {without}'}",
        "vocab_size": vocab_size,
        "tower": tower_of(whole),
        **described,
    }
    return checked(fields, label=label)


def read_families() -> tuple[str, ...]:
    """Families that are read, in alphabetical order."""
    return tuple(sorted(name for name, known in families().items() if "refused" not in known))


def _named(config: Mapping[str, object]) -> Mapping[str, object]:
    """The file with its family, which some name by their class alone.

    Raises:
        UnsupportedFamily: It is the file of another library, of models that make pictures.
    """
    if "_diffusers_version" in config:
        raise UnsupportedFamily(f"{config.get('_class_name')}: diffusion models are not priced; decoders of text are")
    if isinstance(config.get("model_type"), str):
        return config
    return {**config, "model_type": model_type(config, {**families(), **defaults()})}


def listening_part(config: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """Of a model that speaks too, the part that hears, sees and reads, and what is left out."""
    inner = config.get("thinker_config")
    if not isinstance(inner, Mapping):
        return config, ""
    return {"model_type": f"{config.get('model_type')}_thinker", **inner}, "talker"


def text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """The decoder's own configuration, where the file describes a vision tower too; else the file."""
    inner, whole = config.get("text_config"), str(config.get("model_type"))
    known = defaults().get(whole, {})
    if not isinstance(inner, Mapping):
        flat = known.get("text_part")
        return {**config, "model_type": flat} if flat and "num_hidden_layers" in config else config
    family = TEXT_PARTS.get(whole) or inner.get("model_type") or known.get("text_part")
    tied = config.get("tie_word_embeddings", inner.get("tie_word_embeddings"))
    tied = known.get("tie_word_embeddings") if tied is None else tied
    outer = {} if tied is None else {"tie_word_embeddings": tied}
    return {**inner, **outer, "model_type": family} if family else config


def left_out(config: Mapping[str, object]) -> str:
    """What of a configuration is no part of its model.

    That is towers of unknown kind, layers that predict further tokens, and the few bits that its weights are stored in.
    """
    inner = text_part(config)
    mtp, stored = (inner.get(name) for name in ("num_nextn_predict_layers", "quantization_config"))
    layers = f"layers that predict further tokens (--set model.mtp_layers={mtp})" if mtp else ""
    stored = config.get("quantization_config", stored)
    method = str(stored.get("quant_method", "an unnamed method")) if isinstance(stored, Mapping) else ""
    bits = f"quantisation of weights by {method:.40} (--base-precision)" if method else ""
    return " and ".join(filter(None, (*left_out_parts(config), layers, bits)))
