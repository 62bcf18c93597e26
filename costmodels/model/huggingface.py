"""Hugging Face `config.json` descriptions read as `Model`.

One small adapter per `model_type`, in the literal table `ADAPTERS`; those of families with experts or latent
attention are in `huggingface_experts`, those with Mamba-2 mixers in `huggingface_hybrid`.
An adapter names the configuration's fields, and states what the family's implementation fixes (biases, norms,
tied embeddings). Families with another kind of layer are refused by name rather than approximated.
"""

from collections.abc import Callable, Mapping

from costmodels.model.huggingface_config import (
    Config,
    Entries,
    Fields,
    UnsupportedFamily,
    biases,
    even_heads,
    learned_positions,
    llama_decoder,
    model_type,
    partial_rotary,
    refuse_experts,
    sequence,
    stated_biases,
    tied,
    ungated_decoder,
    upper_window,
    window,
)
from costmodels.model.huggingface_experts import EXPERT_ADAPTERS, left_out, text_part
from costmodels.model.huggingface_hybrid import HYBRID_ADAPTERS
from costmodels.model.huggingface_table import (
    families,
    not_understood,
    read_by_table,
    refuse_mechanism,
    table_config,
)
from costmodels.model.huggingface_towers import tower_of
from costmodels.model.model import Model, checked
from costmodels.model.parts import BadModel, Position
from hardware.errors import meant

CONFIGURATION = "Hugging Face configuration"
"""Source of such models; what the file describes besides them follows."""


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
        UnsupportedFamily: The family is not in `ADAPTERS`.
        BadModel: A field is missing, of the wrong type, or contradicts another one. One line.
    """
    without, whole = left_out(config), config
    known = (*ADAPTERS, *families())
    refuse_mechanism(config, name)
    config = text_part(config)
    family = model_type(config, known)
    refuse_mechanism({"model_type": family}, name)
    if family not in known:
        read = read_families()
        others = f"{len(read)} families of decoders can be read, such as llama, qwen3 and deepseek_v3"
        near = meant(family, read, otherwise=others)
        otherwise = "; or write its sizes into a TOML file, such as examples/my-model.toml"
        raise UnsupportedFamily(f"Hugging Face model family {family!r} is not supported; {near}{otherwise}")
    label = name or str(config.get("_name_or_path") or family)
    nested = isinstance(whole.get("text_config"), Mapping)
    if family not in ADAPTERS or nested:
        config = table_config(config, family, nested=nested)
    entries = Entries(config)
    reader = Config(entries, label, seq_length)
    reader.few_layers()
    vocab_size = reader.count("vocab_size")
    described = ADAPTERS[family](reader) if family in ADAPTERS else read_by_table(reader, family)
    if "moe" not in described and "unused_experts" not in families().get(family, {}):
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
    return tuple(sorted({*ADAPTERS, *(name for name, known in families().items() if "refused" not in known)}))


def _sizes(config: Config, layers: str, hidden: str, heads: str, groups: int | None = None) -> Fields:
    """Layers, width and heads under a family's spellings of each, the usual one first; as many groups as heads."""
    hidden_size, num_heads = config.count(*hidden.split()), config.count(*heads.split())
    return {
        "num_layers": config.count(*layers.split()),
        "hidden_size": hidden_size,
        **even_heads(config, hidden_size, num_heads, groups or num_heads),
    }


def _gpt2(config: Config) -> Fields:
    max_positions = config.reach("n_positions", "max_position_embeddings")
    fields = _sizes(config, "n_layer num_hidden_layers", "n_embd hidden_size", "n_head num_attention_heads")
    return fields | {
        "ffn_hidden_size": config.count("n_inner", default=4 * config.count("n_embd", "hidden_size")),
        "activation": config.activation("activation_function", default="gelu_new", gated=False),
        **learned_positions(max_positions),
        "norm_bias": True,
        **biases(qkv=True, output=True, ffn=True),
        **tied(config, default=True),
    }


def _gpt_bigcode(config: Config) -> Fields:
    return _gpt2(config) | ({"num_query_groups": 1} if config.switch("multi_query", default=True) else {})


def _gpt_neo(config: Config) -> Fields:
    max_positions, kinds = config.reach("max_position_embeddings"), config.get("attention_layers")
    local = not isinstance(kinds, list) or "local" in kinds
    fields = _sizes(config, "num_layers num_hidden_layers", "hidden_size", "num_heads num_attention_heads")
    return fields | {
        "ffn_hidden_size": config.count("intermediate_size", default=4 * config.count("hidden_size")),
        "activation": config.activation("activation_function", default="gelu_new", gated=False),
        **learned_positions(max_positions),
        # Global and local attention alternate in every published model of the family.
        "sliding_window": config.count("window_size", default=256) if local else None,
        "sliding_window_every": 2 if local else None,
        "norm_bias": True,
        **biases(qkv=False, output=True, ffn=True),
        **tied(config, default=True),
    }


def _gptj(config: Config) -> Fields:
    head_dim = config.count("n_embd") // config.count("n_head")
    return _gpt2(config) | {
        "position": "rotary",
        "max_positions": 0,
        "rotary_fraction": config.count("rotary_dim", default=head_dim) / head_dim,
        "parallel_block": True,
        "num_norms": 1,
        "head_bias": True,
        **biases(qkv=False, output=False, ffn=True),
        **tied(config, default=False),
    }


def _gpt_neox(config: Config) -> Fields:
    attention_bias = config.switch("attention_bias", default=True)
    fields = ungated_decoder(config, activation="gelu")
    return fields | {
        # The family is multi-head whatever else the configuration says.
        "num_query_groups": fields["num_heads"],
        "rotary_fraction": config.fraction("rotary_pct", default=0.25),
        "parallel_block": config.switch("use_parallel_residual", default=True),
        "norm_bias": True,
        **biases(qkv=attention_bias, output=attention_bias, ffn=True),
        **tied(config, default=False),
    }


def _opt(config: Config) -> Fields:
    hidden_size, reach = config.count("hidden_size"), config.reach("max_position_embeddings")
    width = config.count("word_embed_proj_dim", default=hidden_size)
    biased = config.switch("enable_bias", default=True)
    affine = config.switch("layer_norm_elementwise_affine", default=True)
    norm_before = config.switch("do_layer_norm_before", default=True)
    return {
        **_sizes(config, "num_hidden_layers", "hidden_size", "num_attention_heads"),
        "ffn_hidden_size": config.count("ffn_dim"),
        "activation": config.activation("activation_function", default="relu", gated=False),
        "position": "learned",
        # The implementation keeps two rows in front for padding.
        "max_positions": reach + 2,
        "seq_length": reach,
        "embedding_size": None if width == hidden_size else width,
        "norm_weight": affine,
        "norm_bias": affine,
        "final_norm": norm_before and not config.switch("_remove_final_layer_norm", default=False),
        **biases(qkv=biased, output=biased, ffn=biased),
        **tied(config, default=True),
    }


def _bloom(config: Config) -> Fields:
    hidden = "hidden_size n_embed n_embd"
    return {
        **_sizes(config, "n_layer num_hidden_layers", hidden, "n_head num_attention_heads"),
        "ffn_hidden_size": 4 * config.count(*hidden.split()),
        "position": "alibi",
        "seq_length": config.count("seq_length", default=2048),
        "embedding_norm": True,
        "norm_bias": True,
        **biases(qkv=True, output=True, ffn=True),
        **tied(config, default=True),
    }


def _falcon(config: Config) -> Fields:
    grouped = config.switch("new_decoder_architecture", default=False)
    multi_query = config.switch("multi_query", default=True) and not grouped
    heads = config.count("num_attention_heads", "n_head")
    groups = config.count("num_kv_heads", "n_head_kv", default=heads) if grouped else heads
    parallel = grouped or config.switch("parallel_attn", default=True)
    norms = config.count("num_ln_in_parallel_attn", default=2) if grouped else 1
    biased = config.switch("bias", default=False)
    spelled = ("num_hidden_layers n_layer", "hidden_size", "num_attention_heads n_head")
    return {
        **_sizes(config, *spelled, groups=1 if multi_query else groups),
        "ffn_hidden_size": config.count("ffn_hidden_size", default=4 * config.count("hidden_size")),
        "activation": config.activation("activation", default="gelu", gated=False),
        "position": "alibi" if config.switch("alibi", default=False) else "rotary",
        "seq_length": config.count("max_position_embeddings", default=2048),
        "parallel_block": parallel,
        "num_norms": norms if parallel else 2,
        "norm_bias": True,
        **biases(qkv=biased, output=biased, ffn=biased),
        **tied(config, default=True),
    }


def _mpt(config: Config) -> Fields:
    hidden_size, num_heads = config.count("d_model"), config.count("n_heads")
    attention, reach = config.inner("attn_config"), config.reach("max_seq_len")
    position: Position = "alibi" if attention.switch("alibi", default=True) else "none"
    if position == "none" and config.switch("learned_pos_emb", default=True):
        position = "learned"
    biased = not config.switch("no_bias", default=True)
    return {
        **_sizes(config, "n_layers", "d_model", "n_heads", attention.count("kv_n_heads", default=num_heads)),
        "ffn_hidden_size": config.count("expansion_ratio", default=4) * hidden_size,
        "position": position,
        "max_positions": reach if position == "learned" else 0,
        **sequence(reach),
        "norm_bias": biased,
        "qk_norm": "full" if attention.switch("qk_ln", default=False) else "none",
        **biases(qkv=biased, output=biased, ffn=biased),
        **tied(config, default=True),
    }


def _mistral(config: Config) -> Fields:
    return llama_decoder(config) | window(config, every=None)


def _gemma(config: Config) -> Fields:
    activation = "hidden_activation" if config.get("hidden_activation") is not None else "hidden_act"
    return llama_decoder(config) | {
        "head_dim": config.count("head_dim", default=256),
        # The first release said "gelu" and meant its tanh form; both are GeGLU here.
        "activation": config.activation(activation, default="gelu_pytorch_tanh", gated=True),
        **tied(config, default=True),
    }


def _alternating(family: Callable[[Config], Fields], every: int, **facts: object) -> Callable[[Config], Fields]:
    """The family with a window in all layers but every n-th, of which a configuration may say another n."""

    def read(config: Config) -> Fields:
        stated = config.count("sliding_window_pattern", "_sliding_window_pattern", default=every)
        return family(config) | facts | window(config, every=stated)

    return read


def _phi(config: Config) -> Fields:
    if config.switch("qk_layernorm", default=False):
        raise BadModel(f"{config.label}: qk_layernorm: norms with biases on queries and keys are not supported")
    return ungated_decoder(config, activation="gelu_new") | {
        "rotary_fraction": partial_rotary(config, default=0.5),
        "parallel_block": True,
        "num_norms": 1,
        "norm_bias": True,
        "head_bias": True,
        **biases(qkv=True, output=True, ffn=True),
        **tied(config, default=False),
    }


def _stablelm(config: Config) -> Fields:
    parallel = config.switch("use_parallel_residual", default=False)
    return llama_decoder(config) | {
        "rotary_fraction": partial_rotary(config, default=0.25),
        "parallel_block": parallel,
        "num_norms": 1 if parallel else 2,
        "norm": "layernorm",
        "norm_bias": True,
        "qk_norm": "full" if config.switch("qk_layernorm", default=False) else "none",
        **biases(qkv=config.switch("use_qkv_bias", default=False), output=False, ffn=False),
    }


def _starcoder2(config: Config) -> Fields:
    biased = config.switch("use_bias", default=True)
    return {
        **ungated_decoder(config, activation="gelu_pytorch_tanh"),
        "norm_bias": True,
        **biases(qkv=biased, output=biased, ffn=biased),
        **tied(config, default=True),
        **window(config, every=None),
    }


def _nemotron(config: Config) -> Fields:
    return ungated_decoder(config, activation="relu2") | {
        "rotary_fraction": partial_rotary(config, default=0.5),
        "norm_bias": True,
        **stated_biases(config),
        **tied(config, default=False),
    }


def _internlm2(config: Config) -> Fields:
    biased = config.switch("bias", default=False)
    return llama_decoder(config) | biases(qkv=biased, output=biased, ffn=False)


def _baichuan(config: Config) -> Fields:
    # The 7B models rotate and state how far; the 13B models use ALiBi and only state a tokeniser limit.
    if config.get("max_position_embeddings") is not None:
        return llama_decoder(config)
    limit = config.count("model_max_length", default=4096)
    fields = llama_decoder(Config({**config.entries, "max_position_embeddings": limit}, config.label))
    return fields | {"position": "alibi"}


def _cohere(config: Config) -> Fields:
    return llama_decoder(config) | {
        "parallel_block": True,
        "num_norms": 1,
        "norm": "layernorm",
        "qk_norm": "full" if config.switch("use_qk_norm", default=False) else "none",
        **tied(config, default=True),
    }


def _qwen2(config: Config) -> Fields:
    return llama_decoder(config) | {"qkv_bias": True} | upper_window(config)


def _qwen3(config: Config) -> Fields:
    head_dim = {"head_dim": config.count("head_dim", default=128)}
    return llama_decoder(config) | {"qk_norm": "head"} | head_dim | upper_window(config)


ADAPTERS: dict[str, Callable[[Config], Fields]] = {
    "baichuan": _baichuan,
    "bloom": _bloom,
    "cohere": _cohere,
    "cohere2": _alternating(_cohere, 4),
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": lambda config: _gemma(config) | {"num_norms": 4} | window(config, every=2),
    "gemma3_text": _alternating(_gemma, 6, num_norms=4, qk_norm="head"),
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "codegen": _gptj,
    "granite": llama_decoder,
    "internlm2": _internlm2,
    "llama": llama_decoder,
    "mistral": _mistral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "olmo": lambda config: llama_decoder(config) | {"norm": "layernorm", "norm_weight": False, "norm_bias": False},
    "olmo2": lambda config: llama_decoder(config) | {"qk_norm": "full"},
    "opt": _opt,
    "phi": _phi,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen2_5_omni_text": _qwen2,
    "qwen2_5_vl": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_vl": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_vl_text": _qwen3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    **EXPERT_ADAPTERS,
    **HYBRID_ADAPTERS,
}
