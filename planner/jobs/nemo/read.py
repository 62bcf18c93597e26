"""NeMo: YAML of NeMo 1's ``megatron_gpt_config``, and configurations and overrides of Megatron-Bridge and NeMo 2."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from costmodels.model.catalogue import model
from planner.errors import BadRequest
from planner.jobs.imported import ImportedJob
from planner.jobs.logs.lines import table_in
from planner.jobs.logs.tables import Findings, log_reader, made_job, tables
from planner.jobs.megatron.configurations import table_job, table_words
from planner.jobs.megatron.dialect import Words, dialect
from planner.jobs.megatron.read import BOTH_WAYS
from planner.jobs.nemo.python import (
    DECIDE,
    Recipe,
    configurations_in,
    known_recipes,
    recipe_of_command,
    recipes_in,
    words_of,
    words_of_configuration,
)
from planner.jobs.reader import CommandReader, Context, DocumentReader, JobFile, Launch, reader_of_tables
from planner.jobs.transformers.arguments import overrides_of
from planner.jobs.values import put, table_at

_ONE: Final = dialect("nemo")
_BRIDGE: Final = dialect("bridge")
_PARTS: Final = {
    **dict.fromkeys(("model", "train", "ddp", "optimizer", "dist"), ""),
    "mixed_precision": "mixed-precision.",
}
_RECIPES_FORMAT: Final = "mixed_precision is not given; bf16 is priced, as recipes of Megatron-Bridge have it"
_RECIPE: Final = re.compile(r"_(pretrain|sft|finetune|peft|lora|performance)?_?(config|recipe)?$")


def _one_words(document: Mapping[str, Any], context: Context) -> Words:
    words = table_words(document, {"trainer": "trainer.", "model": ""}, context.environment)
    kind = words.get("activations-checkpoint-granularity")
    for name in ("activations-checkpoint-method", "activations-checkpoint-num-layers"):
        if kind != ["full"]:
            words.pop(name, None)  # written too, and of no effect
    return words


def _is_one(document: Mapping[str, Any]) -> bool:
    model = document.get("model")
    own = {"encoder_seq_length", "megatron_amp_O2", "mcore_gpt", "activations_checkpoint_granularity"}
    return isinstance(model, dict) and (bool(own & set(model)) or {"micro_batch_size", "optim"} <= set(model))


def nemo_job(document: Mapping[str, Any], context: Context) -> ImportedJob:
    """The job of a configuration of NeMo 1's Megatron GPT."""
    model = table_at(document, "model")
    if isinstance(model.get("encoder"), Mapping) and isinstance(model.get("decoder"), Mapping):
        raise BadRequest("model.encoder with model.decoder is not priced; a decoder of text is")
    found = table_job(_one_words(document, context), _ONE, context)
    return replace(found, unpriced=(*found.unpriced, BOTH_WAYS)) if "bert_binary_head" in model else found


def _is_bridge(document: Mapping[str, Any]) -> bool:
    own = all(isinstance(document.get(name), dict) for name in ("model", "train")) and "system" not in document
    more = bool({"ddp", "optimizer", "checkpoint", "mixed_precision"} & set(document))
    return own and more and not _is_one(document) and any("parallel_size" in key for key in document["model"])


def _of_bridge(words: Words, context: Context) -> ImportedJob:
    """The job of settings above a recipe's, which train in mixed precision unless they say another."""
    if any(name.startswith(("mixed-precision", "bf16", "fp16")) for name in words):
        return table_job(words, _BRIDGE, context)
    found = table_job({**words, "mixed-precision": ["bf16_mixed"]}, _BRIDGE, context)
    return replace(found, assumed=(*found.assumed, _RECIPES_FORMAT), filled=found.filled | {"precision"})


def _overrides(launch: Launch) -> dict[str, str]:
    """Overrides such as ``model.tensor_model_parallel_size=2`` of a launch, by path."""
    known = {*_PARTS, "peft", "cfg"}
    return {name: one for name, one in overrides_of(launch.words).items() if name.partition(".")[0] in known}


def _is_recipe(launch: Launch) -> bool:
    program = any("recipe" in word for word in launch.words if word.endswith(".py")) or "--recipe" in launch.words
    return program and bool(_overrides(launch) or "--recipe" in launch.words)


def _read_recipe(launch: Launch, context: Context) -> ImportedJob:
    words: Words = {}
    for path, value in _overrides(launch).items():
        part, _, name = path.partition(".")
        word = (name or part) if part != "peft" else path
        several = value.startswith("[")
        words[word.replace("_", "-")] = value.strip("'\"[]").split(",") if several else [value.strip("'\"")]
    if named := launch.option("recipe"):
        words["recipe"] = [_RECIPE.sub("", named).replace("_", "-")]
    return _of_bridge(words, context)


_TWO: Final = replace(
    _BRIDGE,
    name="NeMo 2",
    says=("a recipe of NeMo 2: what callbacks and branches of the script set of it is not read",),
)


def _of_recipe(recipe: Recipe, context: Context) -> ImportedJob:
    words, open_ = words_of(recipe)
    found = table_job(words, _TWO, context)
    return _asked(replace(found, layers=_with_ends(recipe, found)), open_)


def _asked(found: ImportedJob, open_: set[str]) -> ImportedJob:
    """A job without what its script leaves open, and with the options that say it."""
    asked = {DECIDE[word] for word in open_ if word in DECIDE}
    unsaid = {name: f"{option} says what the recipe does not" for name, option in sorted(asked) if option}
    names = {name for name, _ in asked}
    others = sorted(open_ - set(DECIDE))
    unread = tuple(f"{word} is no constant in the script, and not read" for word in others)
    return replace(
        found,
        fields={name: value for name, value in found.fields.items() if name not in names},
        pins={name: value for name, value in found.pins.items() if f"pins.{name}" not in names},
        unsaid=unsaid,
        unpriced=(*found.unpriced, *unread),
        length=found.length if "train-iters" not in open_ else None,
    )


def _with_ends(recipe: Recipe, found: ImportedJob) -> tuple[int, ...] | None:
    """Layers of the stages where the embedding and the head count as one each."""
    pp, ends = found.pins.get("pp", 1), known_recipes().get(recipe.name, {}).get("ends")
    if not ends or pp == 1 or "model" not in found.fields:
        return found.layers
    each, left = divmod(model(found.fields["model"]).num_layers + 2, pp)
    return None if left else (each - 1, *[each] * (pp - 2), each - 1)


def _read_python(file: JobFile, context: Context) -> ImportedJob:
    recipe = _chosen(recipes_in(file.text), context)
    return recipe if isinstance(recipe, ImportedJob) else _of_recipe(recipe, context)


def _chosen(recipes: Sequence[Recipe], context: Context) -> Recipe | ImportedJob:
    """The recipe of several that is meant, else that it must be said."""
    if context.launch is None and len(recipes) > 1:
        listed = ", ".join(f"{place}: {one.name}.{one.call}" for place, one in enumerate(recipes, 1))
        return ImportedJob(missing=(f"--launch N says which of its {len(recipes)} recipes ({listed})",))
    place = context.launch or 1
    if place > len(recipes):
        raise BadRequest(f"there is no recipe {place}; it has {len(recipes)}")
    return recipes[place - 1]


def _read_configuration(file: JobFile, context: Context) -> ImportedJob:
    made = _chosen(configurations_in(file.text), context)
    if isinstance(made, ImportedJob):
        return made
    words, open_, gpus = words_of_configuration(made)
    lost = {word for word in DECIDE if word not in words} - {"nnodes", "nproc-per-node"}
    found = _asked(table_job(words, _BRIDGE, context), open_ | lost)
    adapts = "peft" in made.call and "peft.dim" not in words
    unsaid = {"adapters": "--adapters says the rank of the recipe's adapters"} if adapts else {}
    fields = {**found.fields, **({"gpus": gpus} if gpus else {})}
    return replace(found, fields=fields, unsaid={**found.unsaid, **unsaid})


_BRIDGES: Final = "megatron-bridge"
READERS: Final = (
    DocumentReader(
        "nemo-recipe", "a recipe of NeMo 2", _BRIDGES, lambda file: bool(recipes_in(file.text)), _read_python
    ),
    DocumentReader(
        "bridge-recipe", "a recipe of Megatron-Bridge", _BRIDGES, lambda file: bool(configurations_in(file.text)),
        _read_configuration,
    ),
    CommandReader(
        "nemo-recipe", "a command line of NeMo 2", _BRIDGES,
        lambda launch: Path(launch.words[0]).name == "nemo" and bool({"pretrain", "finetune"} & {*launch.words[:4]}),
        lambda launch, context: _of_recipe(recipe_of_command(launch.words), context),
    ),
    reader_of_tables("nemo", "a configuration of NeMo 1", _BRIDGES, _is_one, nemo_job),
    reader_of_tables(
        _BRIDGES, "a configuration of Megatron-Bridge", _BRIDGES, _is_bridge,
        lambda document, context: _of_bridge(table_words(document, _PARTS, context.environment), context),
    ),
    CommandReader(_BRIDGES, "overrides of a recipe of Megatron-Bridge", _BRIDGES, _is_recipe, _read_recipe),
)  # fmt: skip


_SETTING: Final = "cfg/"
"""What stands in front of a model's settings where DLLogger writes them, tables within tables by slashes."""
_FIRST: Final = 1000
"""Lines among which they are."""


def _settled(_: Findings, file: JobFile, context: Context) -> ImportedJob:
    """The job of the settings that DLLogger writes; where they make none, why; of other logs nothing."""
    line = next((line for line in islice(file.lines(), _FIRST) if f'"{_SETTING}' in line), "")
    data = (table_in(line) or {}).get("data")
    if not isinstance(data, Mapping):
        return ImportedJob()
    model: dict[str, Any] = {}
    for path, value in data.items():
        put(model, str(path).removeprefix(_SETTING).split("/"), value)
    document = {"model": model, "trainer": {"precision": model.pop("precision", None)}}
    return replace(made_job(lambda: nemo_job(document, context), "settings that it prints do"), length=None)


def _aside(findings: Findings) -> Sequence[str]:
    """Over how many steps its timer takes the mean."""
    last = tables("nemo/log").forms[0].of_last
    return [f"NeMo prints a mean over the last {last} steps"] if findings.timing else ()


LOG: Final = log_reader(  # a configuration may name checkpoints by a loss
    "nemo", _settled, aside=_aside, unless=lambda file: {"trainer", "model"} <= set(file.document or ())
)
