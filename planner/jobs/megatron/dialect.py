"""Programs that are started with Megatron-LM's arguments, and with some of their own: what those stand for in its.

A dialect is a table. Its options are turned into Megatron-LM's, which one reader reads; what it runs with by default
otherwise stands below them. Programs that train more than a decoder of text have Mamba layers or a vision tower.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any, Final

from planner.errors import BadRequest
from planner.jobs.options import without_price
from planner.jobs.reader import Launch
from planner.jobs.values import data, each_name, pattern, words

_SAID: Final = data("megatron/effects")
_REMOVED: Final = data("megatron/removed")
"""What the options of earlier releases meant, which are read in every dialect: forks keep them."""
OF_VISION: Final = each_name(_SAID["vision"])
"""Options of multimodal programs, by which these are known."""
_BASE: Final[Mapping[str, Mapping[str, Any]]] = {
    **{name: _REMOVED[name] for name in ("means", "refused", "stands_for")},
    "unpriced": {**OF_VISION, **each_name({**_SAID["unpriced"], **_REMOVED["unpriced"]})},
}
"""Tables of options that those of a dialect stand above."""
_FIELDS: Final[Mapping[str, str]] = data("megatron/words")["configuration"]
"""Options by the fields of Megatron-Core's own configurations, which settings in files have."""
OF_THE_RUN: Final = pattern(words(_SAID["harmless"] + _REMOVED["harmless"]))
"""Pattern of options that change no price: rates, checkpoints, data, logs, launchers."""


Words = dict[str, list[str]]
"""Values of every option, without dashes in front."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a program makes of its arguments.

    Attributes:
        name: what a person calls it.
        means: by option of its own, the words of Megatron-LM that it stands for, ``{}`` being its values; or, by value,
            such words. No words are what is priced anyway.
        usual: words of Megatron-LM that it runs with unless an option says otherwise.
        refused: options that no price has, and why.
        unpriced: options that are read and not priced, with what they do to time and memory.
        stands_for: fields of the stack, by the flag that changes them.
        harmless: pattern of its options that change no price.
        stack: that is priced.
        knows: whether a launch is its own.
        booleans: flags take true or false.
        environment: variables that stand for options, such as the processes of a node.
        balanced: layers that do not come out even are spread over the stages.
        cluster: that it runs on unless another is asked for, where it runs on no GPUs.
        framework: that plans for it are of.
        says: what a reader of the answer should know, whatever the options.
    """

    name: str = "Megatron-LM"
    means: Mapping[str, str | Mapping[str, str]] = field(default_factory=lambda: _BASE["means"])
    usual: str = ""
    refused: Mapping[str, str] = field(default_factory=lambda: _BASE["refused"])
    unpriced: Mapping[str, str] = field(default_factory=lambda: _BASE["unpriced"])
    stands_for: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _BASE["stands_for"])
    harmless: str = OF_THE_RUN
    stack: str = "megatron-core"
    knows: Callable[[Launch], bool] = lambda _: True
    booleans: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    balanced: bool = False
    cluster: str = ""
    framework: str = "megatron-lm"
    says: tuple[str, ...] = ()


MEGATRON: Final = Dialect()


def dialect(name: str, knows: Callable[[Launch], bool] | None = None) -> Dialect:
    """The dialect of a table, which stands above Megatron-LM's own; launches are known by its options by default."""
    said = dict(data(f"megatron/dialects/{name}"))
    said |= {table: each_name(said[table]) for table in ("refused", "unpriced") if table in said}
    own = frozenset(said.pop("options", "").split())
    harmless = words(said.pop("harmless", ""))
    return Dialect(**said | {
        "says": tuple(said.get("says", ())),
        "knows": knows or (lambda launch: not own or bool(own & option_names(launch))),
        "harmless": f"{OF_THE_RUN}|{pattern(harmless)}" if harmless else OF_THE_RUN,
        **{name: {**table, **said.get(name, {})} for name, table in _BASE.items()},
        "means": {**_BASE["means"], **(_FIELDS if said.get("booleans") else {}), **said.get("means", {})},
    })  # fmt: skip


def option_names(launch: Launch) -> set[str]:
    """The options of a command line, with dashes in place of underscores and none in front."""
    return {word[2:].partition("=")[0].replace("_", "-") for word in launch.words if word.startswith("--")}


_ON: Final = frozenset({"true", "yes", "on", "1"})
_OFF: Final = frozenset({"false", "no", "off", "0"})
_NUMBER: Final = re.compile(r"-\.?\d")


def options_of(words: Sequence[str]) -> Words:
    """Every option of a command line with its values, as argparse has them; the last one counts."""
    found: Words = {}
    for place, word in enumerate(words):
        if not word.startswith("--") or word == "--":
            continue
        name, is_set, value = word[2:].partition("=")
        after = takewhile(lambda one: not one.startswith("-") or bool(_NUMBER.match(one)), words[place + 1 :])
        found[name.replace("_", "-")] = [value] if is_set else [one for one in after if one != ")"]
    return found


def translated(given: Mapping[str, Sequence[str]], dialect: Dialect, environment: Mapping[str, str]) -> Words:
    """The options of a program as Megatron-LM's."""
    for name, why in dialect.refused.items():
        if name in given and not {value.lower() for value in given[name][:1]} & (_OFF | {"none", "null"}):
            raise BadRequest(f"--{name}: {why}")
    variables = {name: meant for name, meant in dialect.environment.items() if environment.get(name)}
    said = " ".join(meant.replace("{}", environment[name]) for name, meant in variables.items())
    found = options_of(shlex.split(dialect.usual)) | options_of(shlex.split(said))
    for name, stands_for in dialect.means.items():
        values = given.get(name)
        off = values is not None and len(values) == 1 and values[0].lower() in _OFF - {"0"}
        if values is not None and not (dialect.booleans and isinstance(stands_for, str) and off):
            found |= _meant(name, values, stands_for)
    put = _switch if dialect.booleans else dict.__setitem__
    for name, values in given.items():
        if name not in dialect.means:
            put(found, name, list(values))
    return found


def _meant(name: str, values: Sequence[str], stands_for: str | Mapping[str, str]) -> Words:
    """What an option of a dialect's own is in Megatron-LM's words."""
    if isinstance(stands_for, str):
        return options_of([part for word in shlex.split(stands_for) for part in (values if word == "{}" else [word])])
    value = " ".join(values).lower() or "true"
    if value not in stands_for:
        raise without_price(f"--{name}", value, stands_for)
    return options_of(shlex.split(stands_for[value]))


def _switch(found: Words, name: str, values: list[str]) -> None:
    """A flag that takes true or false is there or not; switched off, one that is on anyway has its negation."""
    word = values[0].lower() if len(values) == 1 else ""
    if word in _OFF - {"0"}:
        found.pop(name, None)
        found |= {OFF[name]: []} if name in OFF else {}
    elif word in _ON - {"1"} and name in OFF:
        found.pop(OFF[name], None)
    elif word in _ON - {"1"}:
        found[name] = []
    else:
        found[name] = values


OFF: Final[Mapping[str, str]] = data("megatron/words")["off"]
"""What is on unless it is switched off, as configurations call it, and Megatron-LM's word for off."""


def _starts_swift(launch: Launch) -> bool:
    """Whether a launch is ``megatron sft`` or its kin, or the script that this runs."""
    words = [word.rpartition("/")[2] for word in launch.words]
    command = any(one == "megatron" and then in {"sft", "pt", "rlhf"} for one, then in pairwise(words))
    scripts = ("_megatron/sft.py", "_megatron/pt.py", "_megatron/rlhf.py")
    return command or any(word.endswith(scripts) for word in launch.words)


SWIFT: Final = dialect("swift", _starts_swift)
DEEPSPEED: Final = dialect("deepspeed")
_OWN: Final = ("slime", "mindspeed", "pai", "zero_bubble")
_OLDER: Final = ("of_2020", "of_2021", "of_2022")
DIALECTS: Final = (SWIFT, *map(dialect, _OWN), DEEPSPEED, *map(dialect, _OLDER))
"""In the order in which they are asked whether a launch is theirs."""


def dialect_of(launch: Launch) -> Dialect:
    """The dialect of a launch."""
    return next((one for one in DIALECTS if one.knows(launch)), MEGATRON)


_MULTIMODAL: Final = frozenset({"pretrain_vlm"})
_LENGTHS: Final = ("decoder-seq-length", "dataloader-seq-length", "seq-length")
"""Options of the language model's length, the first that is given; the last two are of text alone."""
_TOWER: Final = frozenset({*_LENGTHS, "encoder-seq-length", "encoder-num-layers", "decoder-num-layers"})
VISION: Final = "only the language model is priced, not the vision tower and its projection: more memory and time"


def is_multimodal(given: Mapping[str, Sequence[str]], programs: Collection[str]) -> bool:
    """Whether a language model has a vision tower, by the program's name or its options."""
    return bool(_MULTIMODAL & set(programs)) or bool(OF_VISION.keys() & given.keys())


def of_language(given: Mapping[str, Sequence[str]]) -> Words:
    """Options of a multimodal program as those of its language model (pretrain_vlm.py: ``model_provider``)."""
    length = next((name for name in _LENGTHS if name in given), "")
    if not length and "encoder-seq-length" in given:
        tower = f"--encoder-seq-length {' '.join(given['encoder-seq-length']):.40} is for the vision tower"
        raise BadRequest(f"{tower}; --decoder-seq-length is for the language model")
    layers = next((name for name in ("decoder-num-layers", "num-layers") if name in given), "")
    own = {name: list(values) for name, values in given.items() if name not in _TOWER}
    own |= {"seq-length": list(given[length])} if length else {}
    return own | ({"num-layers": list(given[layers])} if layers else {})


def said_of_vision(given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What a price of the language model leaves out."""
    yield VISION
    if "decoder-seq-length" not in given and any(name in given for name in _LENGTHS):
        yield "--seq-length is priced; image tokens may come on top, --decoder-seq-length counts them all"


HYBRID: Final = frozenset({"pretrain_mamba", "pretrain_hybrid"})
"""Programs of Mamba layers."""
_RATIOS: Final = ("hybrid-attention-ratio", "hybrid-mlp-ratio")


def of_hybrid(given: Words) -> Words:
    """Options with the pattern of layers that ratios stand for, where no pattern is given.

    A program of Mamba layers (``--is-hybrid-model``) has nothing but these without ratios.
    """
    said = {name: " ".join(given[name]) for name in _RATIOS if name in given}
    left = {name: values for name, values in given.items() if name not in _RATIOS}
    layers = " ".join(given.get("num-layers", ()))
    if left.keys() & _PATTERNS or not (layers.isascii() and layers.isdecimal()):
        return left
    shares = [_ratio(name, said.get(name, "0")) for name in _RATIOS]
    if not (any(shares) or "is-hybrid-model" in given):
        return left
    if sum(shares) > 1 or int(layers) > _MOST:
        shown = f"shares of {shares[0]:g} and {shares[1]:g} of {layers:.9} layers"
        wrong = f"--{' and --'.join(_RATIOS)}: {shown} are not a model"
        raise BadRequest(f"{wrong}; --hybrid-layer-pattern says the layers")
    return left | {"hybrid-layer-pattern": [pattern_of(int(layers), *shares)]}


_PATTERNS: Final = frozenset({"hybrid-layer-pattern", "hybrid-override-pattern"})
_MOST: Final = 10_000
"""Layers of a model, more than any has."""


def _ratio(name: str, text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise BadRequest(f"--{name}: expected a share up to 1, got {text!r:.40}; --hybrid-layer-pattern says the layers")


def pattern_of(layers: int, attention: float, mlp: float) -> str:
    """Letters of layers by the shares of two kinds; the rest is Mamba (Megatron-Core: ``allocate_layers``).

    Attention is spread evenly between Mamba layers, first and last of which are Mamba; what is feed-forward then takes
    the place of Mamba layers, evenly and as late as possible.
    """
    letters = ["M"] * layers
    attending = round(layers * attention)
    _spread(letters, "*", (layers - attending) / (attending + 1))
    if feeding := round(layers * mlp):
        _spread(letters, "-", (layers - attending - feeding) / feeding)
    return "".join(letters)


def _spread(letters: list[str], letter: str, gap: float) -> None:
    """Make a Mamba layer another kind behind every ``gap`` that stay, rounded."""
    left = gap
    for place, one in enumerate(letters):
        if one == "M":
            turn = left < 0.5
            letters[place] = letter if turn else one
            left += gap if turn else -1
