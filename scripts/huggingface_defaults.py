"""Writes what the configuration classes of `transformers` fill in where a file is silent.

Run with a Python that has `transformers`:
python scripts/huggingface_defaults.py > costmodels/model/huggingface_defaults.toml
"""

import json
import sys
from collections.abc import Iterator

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from costmodels.model.huggingface_table import families as table
from costmodels.model.huggingface_towers import TOWERS

LEFT_OUT = frozenset(
    {"transformers_version", "output_hidden_states", "return_dict", "chunk_size_feed_forward", "is_encoder_decoder"}
    | {"output_attentions", "model_type", "use_cache", "is_decoder", "add_cross_attention"}
)

SIDES = frozenset({"image_size", "merge_kernel_size", "patch_size"})
"""Sizes of towers that may be given for both directions."""
DERIVED = {
    "rwkv": {"attention_hidden_size", "intermediate_size"},
    "zamba": {"attention_hidden_size", "attention_head_dim", "mamba_dt_rank"},
    "zamba2": {"attention_hidden_size", "attention_head_dim", "mamba_headdim", "intermediate_size", "kv_channels"},
}
"""What follows from a family's other sizes, so that a file which is silent on it does not mean the default's."""


def derived(family: str, entries: dict[str, object]) -> set[str]:
    """Keys whose default follows from heads or width: they change where one of these does."""
    found: set[str] = set()
    for size in ("num_attention_heads", "hidden_size"):
        value = entries.get(size)
        if not isinstance(value, int):
            continue
        try:
            other = json.loads(CONFIG_MAPPING[family](**{size: 2 * value}).to_json_string(use_diff=False))
        except (AttributeError, StrictDataclassError, TypeError, ValueError):
            continue
        found |= {name for name in entries if name != size and other.get(name) != entries[name]}
    return found


def lines(family: str) -> Iterator[str]:
    """The numbers, switches and words of a family's default configuration."""
    try:
        config = CONFIG_MAPPING[family]()
    except (AttributeError, TypeError, ValueError):  # what needs more than its defaults has none
        return
    entries = json.loads(config.to_json_string(use_diff=False))
    left_out = LEFT_OUT | DERIVED.get(family, set()) | derived(family, entries)
    said = {name: value for name, value in sorted(entries.items()) if name not in left_out}
    plain = {
        name: value
        for name, value in said.items()
        if (isinstance(value, bool | int) and not name.endswith("token_id"))
        or name.endswith(("_act", "_activation"))
        or name in SIDES
    }
    if plain:
        yield f"\n[{family!s}]" if family.replace("-", "_").isidentifier() else f'\n["{family}"]'
        yield from (f"{name} = {json.dumps(value)}" for name, value in plain.items() if value is not None)


def whole(family: str) -> Iterator[str]:
    """Of a family with a decoder as a part: the part's family, and whether its head shares the embedding."""
    try:
        entries = json.loads(CONFIG_MAPPING[family]().to_json_string(use_diff=False))
    except (AttributeError, ImportError, KeyError, StrictDataclassError, TypeError, ValueError):
        return
    part = entries.get("text_config")
    if not isinstance(part, dict) or part.get("model_type") not in table():
        return
    yield f"\n[{family!s}]" if family.replace("-", "_").isidentifier() else f'\n["{family}"]'
    yield f'text_part = "{part["model_type"]}"'
    if isinstance(entries.get("tie_word_embeddings"), bool):
        yield f"tie_word_embeddings = {json.dumps(entries['tie_word_embeddings'])}"


def main() -> None:
    """Print the table."""
    transformers.logging.set_verbosity_error()
    families = [name for name, known in table().items() if "refused" not in known]
    families += [kind for kind in TOWERS if kind.endswith("_vision_model") or kind == "pixtral"]
    families += [f"{kind}{part}" for kind in TOWERS for part in ("_vision", "_vision_encoder")]
    known = [family for family in sorted(set(families)) if family in CONFIG_MAPPING]
    sys.stdout.write(
        f"# Written by scripts/huggingface_defaults.py out of transformers {transformers.__version__}: what its\n"
        "# configuration classes fill in where a file is silent.\n"
    )
    for family in known:
        sys.stdout.writelines(f"{line}\n" for line in lines(family))
    for family in sorted(set(CONFIG_MAPPING) - set(known) - set(table())):
        sys.stdout.writelines(f"{line}\n" for line in whole(family))


if __name__ == "__main__":
    main()
