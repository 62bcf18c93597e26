"""Every family of decoders that `transformers` ships: its parameters on the meta device against the planner's count."""

import json
import signal
from contextlib import contextmanager

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from costmodels.model.huggingface import from_config
from costmodels.model.huggingface_table import families
from costmodels.model.huggingface_towers import PROJECTIONS, tower_of
from costmodels.model.model import BadModel
from costmodels.model.parameters import parameters

CLASSES = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
KNOWN = sorted(name for name in CLASSES if name in families())
READ = [name for name in KNOWN if "refused" not in families().get(name, {})]
# No models of text alone under the same mapping, and old ones that nobody trains.
NO_DECODERS = frozenset({"cpmant", "ctrl", "emu3", "git", "got_ocr2", "moss_transcribe_diarize"})
# What classes need beyond their defaults.
NEEDED = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 16, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
# Where an instance is not the model: LongCat-Flash's identity experts get input matrices that nothing reads; Helium's
# output projection is always square; MPT's network is always four times as wide, without biases; Nemotron-H's head is
# never shared, its attention has no biases, its shared experts are one. DBRX cannot be made. Zamba shares no
# block where it does not share the embedding; Zamba2's convolution always has a bias, and its heads are as wide as
# their number leaves.
OTHERWISE = {
    ("longcat_flash", None),
    ("dbrx", None),
    ("helium", "hidden_size"),
    ("helium", "num_attention_heads"),
    ("helium", "head_dim"),
    ("mpt", "expansion_ratio"),
    ("mpt", "no_bias"),
    ("zamba", "tie_word_embeddings"),
    ("zamba2", "tie_word_embeddings"),
    ("zamba2", "use_conv_bias"),
    ("zamba2", "mamba_headdim"),
    ("nemotron_h", "attention_bias"),
    ("nemotron_h", "n_shared_experts"),
    ("nemotron_h", "tie_word_embeddings"),
}
REJECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
LEFT_OUT = (
    "token_id",
    "use_cache",
    "output_",
    "return_dict",
    "is_encoder",
    "is_decoder",
    "chunk_size_feed",
    "add_cross",
)


@contextmanager
def at_most(seconds):
    """Raises where what is inside takes longer, as models of many modules do."""

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def instance(family, **changes):
    """A family's configuration, changed, as its file would be, and the parameters of its instance."""
    config = CONFIG_MAPPING[family](**(NEEDED.get(family, {}) | changes))
    name = CLASSES[family]
    made = getattr(transformers, name if isinstance(name, str) else name[0])
    with torch.device("meta"):
        model = made(config)
    return json.loads(config.to_json_string(use_diff=False)), sum(p.numel() for p in model.parameters())


def test_every_family_is_read_or_refused_with_a_reason_or_is_no_decoder():
    inner = {"fuyu": "persimmon", "gemma3": "gemma3_text", "llama4": "llama4_text", "qwen3_5": "qwen3_5_text"}
    silent = set(CLASSES) - set(KNOWN) - NO_DECODERS
    outer = {name for name in silent if f"{name}_text" in families() or name in inner}
    assert silent - outer <= {"mllama", "dots3_note", "cohere_compass_text", "gpt-sw3"}


@pytest.mark.parametrize("family", [name for name in READ if (name, None) not in OTHERWISE])
def test_a_family_counts_as_its_instance_does(family):
    config, count = instance(family)
    assert parameters(from_config(config, seq_length=4096)) == count


@pytest.mark.parametrize("family", [name for name in READ if (name, None) not in OTHERWISE])
def test_a_changed_size_or_switch_counts_as_its_instance_does_or_is_refused(family):
    changed = CONFIG_MAPPING[family](**NEEDED.get(family, {})).to_dict()
    compared = 0
    for name, value in changed.items():
        if not isinstance(value, int) or any(part in name for part in LEFT_OUT) or (family, name) in OTHERWISE:
            continue
        try:
            with at_most(20):
                config, count = instance(family, **{name: (not value) if isinstance(value, bool) else 2 * value})
        except (*REJECTED, StrictDataclassError, TimeoutError):
            continue  # the implementation does not take it
        try:
            read = from_config(config, seq_length=4096)
        except BadModel:
            continue
        compared += 1
        assert parameters(read) == count, (name, value)
    assert compared >= 5


def test_an_encoder_is_refused():
    with pytest.raises(BadModel, match="an encoder"):
        from_config({"model_type": "bert", "vocab_size": 10})


# Families with a tower; a default Aya Vision has heads that do not divide it, a default Gemma 4 has no tower, and
# Idefics names its decoder as its tower.
SEEING = sorted(set(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES) & set(PROJECTIONS))
NO_DEFAULT = {"aya_vision", "gemma4", "idefics3", "smolvlm"}
DECODER = ("language_model", "lm_head", "text_model")


@pytest.mark.parametrize("family", sorted(set(SEEING) - NO_DEFAULT))
def test_a_tower_and_what_projects_its_output_count_as_their_instance_does(family):
    config = CONFIG_MAPPING[family]()
    name = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[family]
    with torch.device("meta"):
        model = getattr(transformers, name if isinstance(name, str) else name[0])(config)
    named = model.named_parameters()
    sound = ("audio", *DECODER)
    count = sum(p.numel() for key, p in named if not any(part in key for part in sound))
    found = tower_of(json.loads(config.to_json_string(use_diff=False)))
    assert found is not None
    assert found["parameters"] == count
