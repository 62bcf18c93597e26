"""Options of the questions: their spelling, their help, and what can be told from their text alone."""

import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hardware.errors import meant
from planner.cli.complete import complete
from planner.cli.inputs import keep_inputs

_DIGITS: Final = re.compile(r"\+?[0-9]+")
_LOOSE: Final = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)([kmbgt]?)", re.IGNORECASE)
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?[a-z]?", re.IGNORECASE)
_SUFFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MOST_DIGITS: Final = 15
_LONGEST_TEXT: Final = 4096
_LONGEST_PIN: Final = 200
PINS_HEADING: Final = "Pins and ranges: 8, 4,8, ..8 or 2..16"


class Text(click.ParamType[str]):
    """Text that is neither empty nor another option: a forgotten value must not swallow the next option."""

    name = "text"

    def __init__(self, most: int = _LONGEST_TEXT) -> None:
        self.most = most

    def shell_complete(self, _ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of the catalogue or files, by the parameter."""
        return complete(param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, stripped."""
        text = str(value).strip()
        if len(text) > self.most:
            self.fail(f"{len(text)} characters, at most {self.most} make sense here", param, ctx)
        if not text:
            self.fail("empty, where a value is expected", param, ctx)
        if text.startswith("--"):
            self.fail(f"expected a value, got the option {text!r}", param, ctx)
        return text


class Count(click.ParamType[int]):
    """A whole number in plain digits: "12k" or "1e3" may be meant well, but nobody should have to guess."""

    name = "n"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if not _DIGITS.fullmatch(text):
            self.fail(self._refusal(text), param, ctx)
        if len(text) > _MOST_DIGITS:
            self.fail(f"a number of {len(text)} digits is out of range", param, ctx)
        if int(text) < self.least:
            self.fail(f"expected at least {self.least}, got {text}", param, ctx)
        return int(text)

    def _refusal(self, text: str) -> str:
        if not text:
            return "empty, where a whole number such as 64 is expected"
        meant = _meant(text)
        if meant is not None and meant < self.least:
            return f"expected at least {self.least}, got {_short(text)}"
        binary = f" or {meant * 128 // 125}" if meant and text.lower().endswith("k") and meant % 125 == 0 else ""
        hint = "such as 64" if meant is None else f"in plain digits: write {meant}{binary}"
        return f"expected a whole number {hint}, got {_short(text)}"


def _meant(text: str) -> int | None:
    """The whole number that "12k", "1e3", "12,288" or "１２" stand for, if there is one."""
    plain = unicodedata.normalize("NFKC", text)
    if "," in plain and not _THOUSANDS.fullmatch(plain.strip()):
        return None  # a list, not a number in groups of three digits
    match = _LOOSE.fullmatch(re.sub(r"[,_'\s]", "", plain))
    if match is None or len(text) > 2 * _MOST_DIGITS:
        return None
    number = float(match[1]) * _SUFFIXES[match[2].lower()]
    return int(number) if number.is_integer() and abs(number) < 10**_MOST_DIGITS else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


class Word(click.Choice[str]):
    """One of a few words; a singular is understood where plurals are listed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word."""
        text = str(value).strip().lower()
        words = list(map(str, self.choices))
        for spelling in (text, f"{text}s"):
            if spelling in words:
                return spelling
        raise click.BadParameter(f"there is no {_short(str(value))}: {meant(text, words)}", ctx, param)


class Option(click.Option):
    """An option that shows its first name in the help, its others behind the text, under a heading."""

    def __init__(self, *declarations: Any, heading: str = "Other", **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.heading = heading
        if self.expose_value and self.name and not isinstance(settings.get("envvar"), str):
            spelt = [self.name, *(name[2:].replace("-", "_") for name in self.opts if name.startswith("--"))]
            self.envvar = list(dict.fromkeys(f"PLAN_{name.upper()}" for name in spelt))

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The first spelling and the text; other spellings in brackets behind it."""
        record = super().get_help_record(ctx)
        if record is None or self.is_flag or self.opts[0].count("-") == 1:
            return record
        # click lists all spellings before the value: "--tp, --tensor-model-parallel-size TEXT"
        metavar = record[0].rpartition(" ")[2]
        others = f"  [also {', '.join(self.opts[1:])}]" if len(self.opts) > 1 else ""
        return f"{self.opts[0]} {metavar}", record[1] + others


class Command(click.Command):
    """A command whose help groups the options under their headings, and that takes each option once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, but refuse an option with two values and an answer over an input, of which one would be lost."""
        self._refuse_twice(ctx, args)
        rest = super().parse_args(ctx, args)
        keep_inputs(ctx)
        return rest

    def _refuse_twice(self, ctx: click.Context, args: list[str]) -> None:
        single = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not (p.multiple or p.count)]
        by_name = {name: param for param in single for name in (*param.opts, *param.secondary_opts)}
        said: dict[str | None, tuple[str, str]] = {}
        for place, word in enumerate(args[: args.index("--")] if "--" in args else args):
            name, _, value = word.partition("=")
            param = by_name.get(name)
            if param is None:
                continue
            if not (value or param.is_flag):
                value = "".join(args[place + 1 : place + 2])
            value = str(name in param.opts) if param.is_flag else value
            before, other = said.setdefault(param.name, (name, value))
            if value != other:
                both = (
                    f"{before} and {name}" if param.is_flag else f"{before} {_short(other)} and {name} {_short(value)}"
                )
                raise click.UsageError(f"{both} are given; leave one of them out", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading, in order of first appearance."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "heading", "Other"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(*names: str, heading: str, **settings: Any) -> Decorator:
    """An `Option` as a decorator; text that is neither empty nor an option unless said otherwise."""
    if not settings.get("is_flag") and "type" not in settings:
        settings["type"] = Text(_LONGEST_PIN if heading == PINS_HEADING else _LONGEST_TEXT)
    return click.option(*names, cls=Option, heading=heading, **settings)


def stacked(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, listed in the order given."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_Q, _P, _O = "Question", PINS_HEADING, "Answer"
SOURCES: Final = ("megatron-args", "deepspeed", "torchtitan", "hf")
"""Formats of other programs; ``planner.jobs.readers`` reads them."""
FORMATS: Final = ("table", "json", "yaml", "env", "args")

saver_options: Final = (
    option("--optimizer", heading=_Q, metavar="NAME", help="adam, adam-bf16, adam-8bit, lamb, sgd, adafactor or muon."),
    option("--main-grads", "--main-grads-dtype", "main_grads", heading=_Q, metavar="NAME", help="fp32 or bf16."),
    option("--main-params", "--main-params-dtype", "main_params", heading=_Q, metavar="NAME", help="fp32 or fp16."),
    option(
        "--fp8-param-gather/--no-fp8-param-gather",
        heading=_Q,
        is_flag=True,
        default=None,
        help="Keep and gather weights in 8 bits.",
    ),
    option("--loss", heading=_Q, metavar="NAME", help="plain, or fused with the head's product."),
    option("--loss-block", heading=_Q, type=Count(), metavar="TOKENS", help="Tokens whose logits exist at once."),
    option("--offload-fraction", heading=_Q, metavar="SHARE", help="Share of the optimizer states to offload."),
    option(
        "--adapters",
        "--lora",
        "adapters",
        heading=_Q,
        metavar="RANK[:MODULES]",
        help="Train adapters beside frozen weights; of linear_qkv,linear_proj,linear_fc1,linear_fc2, all unless said.",
    ),
)

question_options = stacked(
    option("--model", heading=_Q, metavar="NAME|FILE", help="Catalogue name, TOML file or config.json."),
    option("--gpus", heading=_Q, type=Count(), help="Number of accelerators."),
    option("--cluster", heading=_Q, metavar="NAME|FILE", help="Machines (default: dgx-h100)."),
    option(
        "--stack",
        heading=_Q,
        metavar="NAME|FILE",
        help="Training framework (default: megatron-core, on TPUs maxtext).",
    ),
    option("--as-of", "as_of", heading=_Q, metavar="MONTH", help="Release of the stack of that month: 2024-12."),
    option("--profile", heading=_Q, metavar="FILE", help="Both, as `plan calibrate` wrote them."),
    option(
        "--global-batch",
        "--global-batch-size",
        "global_batch_size",
        heading=_Q,
        type=Count(),
        help="Sequences per iteration.",
    ),
    option("--seq-len", "--seq-length", "seq_length", heading=_Q, type=Count(), help="Tokens per sequence."),
    option("--tokens", heading=_Q, metavar="QUANTITY", help="Training tokens, such as 300B."),
    option(
        "--precision",
        heading=_Q,
        metavar="NAME",
        help="fp32, fp16, bf16, fp8, fp8-current, fp8-block, fp8-rowwise, int8, mxfp8, nvfp4.",
    ),
    option("--objective", heading=_Q, metavar="NAME", help="time, mfu, cost, tokens-per-gpu-hour, memory or goodput."),
    option(
        "--ties",
        heading=_Q,
        metavar="NAME",
        help="Take a better-validated plan that is tied: never (fastest), up to 0.1 % (close), any (validated).",
    ),
    option(
        "--goodput",
        heading=_Q,
        is_flag=True,
        default=None,
        help="Count interruptions and checkpoints: --objective goodput.",
    ),
    option(
        "--stability",
        heading=_Q,
        metavar="FILE|NAME=VALUE,...",
        type=Text(),
        help="What they take: detect=5 min, storage=100 GB/s, spare_nodes=8 ...",
    ),
    option("--for", "framework", heading=_Q, metavar="NAME", help="Propose only what this exporter accepts."),
    *saver_options,
    option(
        "--set",
        "changes",
        heading=_Q,
        multiple=True,
        metavar="PATH=VALUE",
        help="One field of the stack or the model, such as stack.overlap.pp=0.1 or model.sliding_window=1024; or a "
        "feature as another stack has it, stack.pipeline-overlap=megascale. Again for more.",
    ),
    option("--memory-margin", heading=_Q, metavar="SHARE", help="Usable memory to leave alone, such as 10%."),
    option(
        "--expert-capacity",
        "--moe-expert-capacity-factor",
        "expert_capacity",
        heading=_Q,
        metavar="FACTOR",
        help="Tokens every expert computes over the mean, such as 1.25; more are dropped.",
    ),
    option(
        "--expert-imbalance",
        heading=_Q,
        metavar="FACTOR",
        help="Tokens of the busiest expert rank over the mean, such as 1.3.",
    ),
    option("--time-limit", heading=_Q, metavar="TIME", help="Longest search: 30s, 2min or plain seconds."),
    option(
        "--config", heading=_Q, metavar="FILE", help="File of these fields, TOML or JSON, or an answer (- for stdin)."
    ),
)

pin_options = stacked(
    option("--tp", "--tensor-model-parallel-size", "tp", heading=_P, help="Tensor parallel size."),
    option("--cp", "--context-parallel-size", "cp", heading=_P, help="Context parallel size."),
    option("--cp-kind", "--cp-comm-type", "cp_kind", heading=_P, help="p2p, a2a, all-gather or a2a+p2p."),
    option("--pp", "--pipeline-model-parallel-size", "pp", heading=_P, help="Pipeline stages."),
    option(
        "--vpp",
        "--num-virtual-stages-per-pipeline-rank",
        "vpp",
        heading=_P,
        help="Model chunks per pipeline stage.",
    ),
    option(
        "--num-layers-per-virtual-pipeline-stage",
        "layers_per_virtual_stage",
        heading=_P,
        type=Count(),
        help="The same by layers per chunk, as Megatron counts; needs one --pp.",
    ),
    option("--dp", "--data-parallel-size", "dp", heading=_P, help="Data parallel size."),
    option("--ep", "--expert-model-parallel-size", "ep", heading=_P, help="Expert parallel size."),
    option("--etp", "--expert-tensor-parallel-size", "etp", heading=_P, help="Tensor parallel size of an expert."),
    option("--zero", "--zero-stage", "zero_stage", heading=_P, help="ZeRO stage, 0 to 3."),
    option("--sharding-degree", heading=_P, help="Ranks over which the ZeRO stage shards."),
    option(
        "--micro-batch",
        "--micro-batch-size",
        "micro_batch_size",
        heading=_P,
        help="Sequences per micro-batch and data-parallel rank.",
    ),
    option("--schedule", heading=_P, help="Pipeline schedule; `plan list schedules` shows them."),
    option(
        "--sequence-parallel/--no-sequence-parallel",
        heading=_P,
        is_flag=True,
        default=None,
        help="Split norms and dropout over the tensor ranks, or do not.",
    ),
    option("--recompute", "--recompute-granularity", "recompute", heading=_P, help="none, selective, partial or full."),
    option(
        "--recompute-num-layers",
        heading=_P,
        help="Layers that are recomputed together from one stored input, where all are (full).",
    ),
    option("--recompute-modules", heading=_P, help="What selective recomputation repeats, such as layernorm,moe_act."),
    option("--offload", heading=_P, help="none, activations, optimizer, optimizer+parameters or any."),
    option("--rank-order", heading=_P, help="Which dimension varies fastest, such as tp-cp-ep-dp-pp."),
    option("--vocabulary", heading=_P, help="Embedding and head at the ends of the pipeline, or spread: ends, spread."),
)

top_option = option("--top", heading="Answer", type=Count(least=0), help="Number of alternatives to show (default: 5).")

reasons_option = option(
    "--reasons/--no-reasons",
    "reasons",
    heading="Answer",
    is_flag=True,
    default=None,
    help="Leave out runners-up, why not and what helps: several times as fast.",
)


def output_options(*formats: str) -> Decorator:
    """Options on the form of the answer, with the formats that the command can write."""
    return stacked(
        option(
            "--format",
            "form",
            heading=_O,
            type=Word(formats),
            default=formats[0],
            metavar="|".join(formats),
            envvar="PLAN_FORMAT",
            help="Form of the answer.",
        ),
        option("--output", "-o", heading=_O, metavar="FILE", help="Write there instead of stdout."),
        option("--quiet", "-q", heading=_O, is_flag=True, help="No talk on stderr."),
        option("--verbose", "-v", heading=_O, is_flag=True, help="More talk on stderr."),
    )


dry_run_option = option(
    "--dry-run",
    heading=_O,
    is_flag=True,
    help="Show the resolved question and who said what; stop.",
)
