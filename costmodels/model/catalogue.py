"""Models by name, or from a user's file.

The catalogue is one TOML file per model in `models/`, named after it; `models/aliases.toml` holds other
names that mean exactly one of them. Only the files that a name needs are opened.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from costmodels.model.model import BadModel, Model, from_shape
from hardware.errors import BadFile, UnknownName, nearest
from hardware.files import Document, built, read

DIRECTORY = Path(__file__).parent / "models"
ALIASES = "aliases"
SUFFIXES = (".toml", ".json")
_ANY_OTHER = "give any other model as a copy of its config.json"
_WORD = re.compile(r"[a-z0-9.]+")
_TUNED = re.compile(r"instruct|base|hf|chat|it|pt|thinking|preview|meta|\d{4}")
"""Words of a name that tell no sizes: what the weights were tuned for, by whom they are published, and when."""
_SIZE = re.compile(r"\d+(\.\d+)?[bm]")
_ACTIVE = re.compile(r"a\d+(\.\d+)?b")
"""Words of a name that tell parameters: all of them, and those that a token meets."""
_FORMAT = re.compile(r"(nv|mx)?fp[48]|int[48]|[48]bit|awq|gptq|bnb|gguf|w\d+a\d+|dynamic|static|channel|pertensor")
"""Words of a name that tell how its weights are stored."""
HUGGING_FACE_FIELDS = {"num_hidden_layers", "num_attention_heads", "n_layer", "n_head", "transformers_version"}
"""Fields that only a Hugging Face configuration has, whatever its family."""


@cache
def names() -> tuple[str, ...]:
    """Every catalogue name, in alphabetical order; no file is opened."""
    stems = (entry.removesuffix(".toml") for entry in os.listdir(DIRECTORY) if entry.endswith(".toml"))  # noqa: PTH208 - half the time of Path.iterdir
    return tuple(sorted(stem for stem in stems if stem != ALIASES))


@cache
def aliases() -> dict[str, str]:
    """Other names, each with the catalogue name it means."""
    table = read(DIRECTORY / f"{ALIASES}.toml")
    return {alias: str(target) for alias, target in table.items()}


def model(name_or_path: str, seq_length: int | None = None) -> Model:
    """The model of that name, or the one that a file describes.

    A path is what ends in .toml or .json or has a separator; a directory means its `config.json`. A JSON
    file with `model_type` or `architectures` is read as a Hugging Face configuration, any other file as
    fields of `Model` (see `from_shape`), also under a `[model]` heading. A configuration that does not say how
    far its positions reach needs the sequence length that is asked for.

    Raises:
        UnknownName: No such name in the catalogue.
        BadFile: The file is missing, unreadable, or does not describe a model.
    """
    if name_or_path.lower().endswith(SUFFIXES) or "/" in name_or_path or os.sep in name_or_path:
        path = Path(name_or_path)
        if name_or_path.lower().endswith(SUFFIXES) or path.exists():
            return from_file(path, seq_length)
        if (known := entry_on_hub(name_or_path)) is None:
            raise BadFile(path, f"no such file, and no such model in the catalogue{_likes(name_or_path)}; {_ANY_OTHER}")
        return _shipped(known)
    name = entry_of(name_or_path)
    if name is None:
        raise UnknownName("model", name_or_path, [*names(), *aliases()])
    return _shipped(name)


@cache
def _shipped(name: str) -> Model:
    return from_file(DIRECTORY / f"{name}.toml")


def _likes(name: str) -> str:
    """The entries most like a hub's name, for an error."""
    plain = "-".join(word for word in _WORD.findall(name.rpartition("/")[2].lower()) if not _FORMAT.fullmatch(word))
    if (same := entry_of(plain)) is not None:
        return f": did you mean {same}? its sizes are the same, and its weights not yet in another format"
    near = nearest(plain, names())
    return f": did you mean {' or '.join(near)}? `plan list models` shows all" if near else " (plan list models)"


def entry_on_hub(name: str) -> str | None:
    """The catalogue name behind one of a hub, such as Qwen/Qwen3-8B; None where it is a file here, or not known."""
    owner, slash, rest = name.partition("/")
    plain = bool(owner and slash and rest) and "/" not in rest and not rest.lower().endswith(SUFFIXES)
    return entry_of(rest) if plain and not Path(name).exists() else None


def entry_of(name: str) -> str | None:
    """The catalogue name behind a name, a short one, or one as hubs spell it; None where there is none, or several.

    What a model was tuned for, and when, changes none of its sizes: Qwen3-8B-Base and Llama-3.1-8B-Instruct are
    entries. Numbers of versions and formats of weights do, and are never left out. The parameters that a token meets
    are, behind a name that has a size: Qwen3.5-35B.
    """
    lowered = name.lower()
    known = names()
    if lowered in known:
        return lowered
    others = aliases()
    if lowered in others:
        return others[lowered]
    stem = _stem(lowered)
    every = {known: known for known in known} | others
    found = {entry for one, entry in every.items() if _stem(one) == stem}
    if not found and {bool(_SIZE.fullmatch(word)) for word in _WORD.findall(lowered)} == {True, False}:
        found = {entry for one, entry in every.items() if _stem(one, without=_ACTIVE) == stem}
    return found.pop() if stem and len(found) == 1 else None


def _stem(name: str, without: re.Pattern[str] = _TUNED) -> str:
    """A name in lower case without separators and the words that say nothing of sizes, or others too."""
    words = (word for word in _WORD.findall(name) if not _TUNED.fullmatch(word))
    return "".join(word for word in words if not without.fullmatch(word))


def from_file(path: Path, seq_length: int | None = None) -> Model:
    """The model that a TOML or JSON file describes; see `model`.

    Raises:
        BadFile: The file is missing, unreadable, or does not describe a model.
    """
    if path.is_dir():
        path /= "config.json"
    return model_in(read(path), path, seq_length)


def model_in(document: Document, path: Path, seq_length: int | None = None) -> Model:
    """The model that a document describes, which was read from a file of that name; errors as of `from_file`."""
    name = path.parent.name if path.name == "config.json" else path.stem

    def build(entries: Document) -> Model:
        if "model_type" in entries or "architectures" in entries:
            # Most runs look a name up; they need not wait for the adapters.
            from costmodels.model.huggingface import from_config

            return from_config(entries, name=name, seq_length=seq_length)
        foreign = sorted(HUGGING_FACE_FIELDS & entries.keys())
        if foreign and path.suffix.lower() != ".toml":
            raise BadModel(
                f'model_type: missing, though there is {foreign[0]}; name the family, such as "model_type": "llama"'
            )
        inner = entries.get("model")
        return from_shape(inner if isinstance(inner, Mapping) else entries, name=name)

    return built(document, build, path)
