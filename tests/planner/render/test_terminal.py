import io
import re
import shlex
import subprocess

import pytest
from rich.console import Console

from planner.answer.text import (
    column_seconds,
    format_count,
    format_days,
    format_energy,
    format_prefixed,
    short_seconds,
    three_digits,
)
from planner.api import predict
from planner.explain.why_not import WhyNot
from planner.render.terminal.bars import bar, flow, plain
from planner.render.terminal.formats import written
from planner.render.terminal.tables import print_rows
from planner.render.terminal.terminal import render
from planner.render.terminal.why_not import render_why_not
from planner.request.request import PlanRequest
from tests.each import each
from tests.planner.fake_plan import fake_plan, infeasible_plan, request, stage, strategy
from tests.scenarios import dense_model

WIDTHS = (40, 60, 80, 89, 90, 100, 120, 200)


class Sheet(io.StringIO):
    def __init__(self, encoding):
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding


def screen(document, *, width=100, encoding="utf-8", terminal=False, draw=render, **how):
    sheet = Sheet(encoding)
    console = Console(file=sheet, width=width, force_terminal=terminal, color_system=None, highlight=False)
    draw(document, console, **how)
    return "\n".join(line.rstrip() for line in sheet.getvalue().splitlines())


@each("width", WIDTHS)
@each("whole", [False, True])
@each("document", [fake_plan(), infeasible_plan()], ids=["plan", "infeasible"])
def test_no_line_is_wider_than_the_screen(document, width, whole):
    lines = screen(document, width=width, whole=whole).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 120])
def test_key_facts_are_on_the_screen_at_every_width(width):
    text = " ".join(screen(fake_plan(), width=width).split())
    for fact in (
        "gpt3-175b 174.6 B parameters batch 6144 seq 2048 bf16 300 B tokens",
        "dgx-a100-80gb 1,536 nodes x 8 a100-sxm-80gb 12,288 GPUs stack megatron-core",
        "Assumed stack megatron-core;", "priced 298,188 that can run, of 1,347,840; proved in 2.10 s",
        "TP 8 tensor parallel: every layer split over 8 GPUs",
        "PP 8 VPP 6 pipeline: 12 layers per stage, 6 chunks, interleaved 1F1B",
        "micro-batch 1 x 32 1 sequence at a time, 32 times an iteration",
        "ZeRO-1 optimizer states split over the copies", "sequence parallel", "no recomputation",
        "1.85 days, 23,842 iterations, $1.61 M, 546 k GPU-hours", "1.88 M tokens/s, 164 TFLOP/s per GPU, MFU 52.7 %",
        "6.10 s to 7.40 s per iteration (90% interval", "GiB (38.9 %) on the fullest GPU, in stage 0: activations",
        "--tensor-model-parallel-size 8",
    ):  # fmt: skip
        assert fact in text, fact


def test_one_of_a_thing_is_told_as_one():
    model = dense_model(num_layers=1, hidden_size=1024, num_heads=8)
    text = screen(predict(PlanRequest(model=model, gpus=1, global_batch_size=1, tokens=2048)))
    for fact in ("1 node x 1 h100-sxm  1 GPU  ", "1 layer on every GPU", "1 iteration,", "one copy of the model"):
        assert fact in text, fact


def test_the_answer_comes_first_in_one_sentence_and_what_was_assumed_last():
    text = screen(fake_plan(), whole=True)
    marks = ["Use TP 8", "gpt3-175b ", "Strategy", "Time of an", "Training", "Risk", "Alternatives", "Why not"]
    marks += ["What would help", "Nearest published run", "Launch", "Assumed"]
    assert [text.index(f"\n{mark}") for mark in marks[1:]] == sorted(text.index(f"\n{mark}") for mark in marks[1:])
    assert " ".join(text.split("\n\n")[0].split()) == (
        "Use TP 8, PP 8 (6 chunks per stage), DP 192: 6.71 s per iteration (52.7 % MFU), "
        "1.85 days, $1.61 M. "
        "No other of the 1,347,840 strategies is faster in the model."
    )


@pytest.mark.parametrize("width", [80, 120])
def test_a_screen_of_much_has_sixty_lines_and_says_what_else_there_is(width):
    alternatives = [fake_plan().alternatives[0]] * 30
    reasons = [{"subject": f"TP {2**n}", "text": "many words " * 20} for n in range(20)]
    warnings = ["this may go wrong in many ways " * 8] * 4
    plan = fake_plan(alternatives=alternatives, why_not=reasons, warnings=warnings)
    text = screen(plan, width=width)
    assert len(text.splitlines()) <= 60
    assert re.search(r"-v adds \d+ alternatives, \d+ reasons, what would help", text)
    everything = screen(plan, width=width, whole=True)
    assert "".join(everything.split()).count("manywords") == 20 * 20
    assert "-v adds" not in everything
    assert len(screen(plan, width=width, most=20).splitlines()) > len(text.splitlines())


def test_time_is_listed_largest_first_with_shares_and_what_is_small_together():
    def terms(**how):
        part = screen(fake_plan(), width=80, **how).split("\nTime of an iteration")[1].split("\n\n")[0]
        return [line.split() for line in part.splitlines()[1:]]

    usual, whole = terms(), terms(whole=True)
    assert usual[0] == ["compute", "5.22", "s", "77.8", "%", "#" * 16]
    assert usual[1] == ["tensor-parallel", "traffic", "0.66", "s", "9.8", "%", "##"]
    assert usual[-1] == ["all", "other", "terms", "0.27", "s", "4.0", "%", "#"]
    assert [row[0] for row in whole[-3:]] == ["pipeline", "host", "optimizer"]
    assert not any(row[0] == "context-parallel" for row in whole)


def test_memory_shows_the_fullest_stage_and_of_all_the_first_the_worst_inner_and_the_last():
    memory = [stage(n, total) for n, total in enumerate((30.0, 28.0, 35.0, 20.0, 25.0))]
    assert "35.0 of 79.2 GiB (44.2 %) on the fullest GPU, in stage 2" in screen(fake_plan(memory_bytes=memory))
    text = screen(fake_plan(memory_bytes=memory), width=80, whole=True)
    (head,) = [line.split() for line in text.splitlines() if line.startswith("  stage")]
    (total,) = [line.split() for line in text.splitlines() if line.startswith("  total")]
    assert head == ["stage", "0", "2", "4"]
    assert total == ["total", "30.0", "35.0", "25.0"]


@pytest.mark.parametrize(("count", "shown"), [(2, ["0", "1"]), (3, ["0", "1", "2"])])
def test_short_pipelines_show_each_stage_once(count, shown):
    text = screen(fake_plan(memory_bytes=[stage(n, 30.0) for n in range(count)]), width=80, whole=True)
    (head,) = [line.split() for line in text.splitlines() if line.startswith("  stage")]
    assert head[1:] == shown


def test_blocks_are_drawn_only_for_a_terminal_that_can_show_them():
    assert "█" in screen(fake_plan(), terminal=True)
    assert "█" not in screen(fake_plan(), terminal=False)
    assert screen(fake_plan(), terminal=True, encoding="latin-1").isascii()


def test_another_encoding_gets_ascii_only():
    assert "0.66 → 5.8 s" in screen(fake_plan())
    text = screen(fake_plan(), encoding="ascii")
    assert text.isascii()
    assert "0.66 -> 5.8 s" in text


def test_no_color_leaves_no_colour_codes(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    sheet = Sheet("utf-8")
    render(fake_plan(), Console(file=sheet, width=100, force_terminal=True))
    assert "\x1b[3" not in sheet.getvalue()
    assert "\x1b[1;3" not in sheet.getvalue()


def pasted(plan, width):
    """What a shell makes of the launch block."""
    block = screen(plan, width=width).split("prints one line)\n")[1].split("\n\n")[0]
    lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
    script = "printf '%s\\0' \\\n" + "\n".join(lines)
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pp", [8, 30], ids=["even", "layout"])
def test_the_launch_block_pasted_into_a_shell_is_what_args_prints(width, pp):
    stages = [{"layers": 12 if pp == 8 else 1 + n % 4, "recompute_layers": 0, "group": "g"} for n in range(pp)]
    plan = fake_plan(strategy=strategy(pp=pp, vpp=6 if pp == 8 else 1, stages=stages))
    assert max(map(len, screen(plan, width=width).splitlines())) <= width
    assert pasted(plan, width) == shlex.split(written(plan, "args")[0])


def test_the_launch_block_itself_says_what_it_cannot_say():
    counts = ((20, 7), (20, 3), (20, 0), (20, 0))
    stages = [{"layers": n, "recompute_layers": r, "group": "g"} for n, r in counts]
    plan = fake_plan(strategy=strategy(pp=4, vpp=1, recompute="full", stages=stages))
    block = screen(plan).split("prints one line)\n")[1].split("\n\n")[0]
    remarks = " ".join(line.strip(" #") for line in block.splitlines() if line.startswith("  # "))
    assert "the plan recomputes 10 (7,3,0,0 per stage)" in remarks
    assert pasted(plan, 100) == shlex.split(written(plan, "args")[0])


@pytest.mark.parametrize("stack", ["fsdp", "deepspeed", "maxtext", "generic", "my-own"])
def test_other_frameworks_get_no_megatron_flags(stack):
    text = screen(fake_plan(request=request() | {"stack": stack}))
    assert "Launch" in text
    assert "--tensor-model-parallel-size" not in text


def test_torchtitan_gets_its_own_launch_block():
    text = screen(fake_plan(request=request() | {"stack": "torchtitan"}))
    assert "--parallelism.tensor_parallel_degree 8" in text
    assert "--tensor-model-parallel-size" not in text


def test_alternatives_say_in_words_what_differs_where_there_is_room():
    assert "PP 16 instead of 8" in screen(fake_plan(), width=130)
    assert "PP 16 instead of 8" not in screen(fake_plan(), width=80)


def test_uneven_stages_and_partial_recomputation_are_spelled_out():
    stages = [{"layers": n, "recompute_layers": r, "group": "g"} for n, r in ((11, 0), (12, 3), (12, 3), (13, 0))]
    uneven = strategy(pp=4, vpp=1, recompute="full", stages=stages)
    text = screen(fake_plan(strategy=uneven))
    assert "pipeline: layers per stage 11, then 2 stages of 12, then 13" in text
    assert "recompute 6/48 layers" in text


def test_a_plan_that_is_not_proved_says_how_far_it_may_be_off():
    proof = {
        "candidates": 10, "feasible": 5, "priced": 5, "solves": 2, "lower_bound_seconds": 6.4, "gap": 0.046,
        "wall_seconds": 60.0, "statement": "time limit",
    }  # fmt: skip
    text = screen(fake_plan(status="feasible", proof=proof), width=120)
    assert "not proved: at most 4.6 % from the optimum" in text
    assert "not proved: another of the 10 strategies may be at most 4.6 % faster" in text
    assert "No other" not in text


@pytest.mark.parametrize(
    ("distance", "beyond", "said"),
    [
        (1.2, "inside", "1.2 away (0 is the same; validated up to 2.7)"),
        (3.1, [], "(outside the validated region, up to 2.7)"),
        (1.2, ["EP 128 (measured: at most 32)"], "(within 2.7, but outside the validated region: see the warning)"),
        (3.1, ["EP 128 (measured: at most 32)"], "(outside the validated region, up to 2.7)"),
    ],
)
def test_the_risk_says_how_far_a_plan_is_from_measured_runs(distance, beyond, said):
    near = {
        "group": "g", "model": "m", "accelerator": "a", "gpus": 8, "stack": "s", "layout": "TP 2", "distance": distance,
        "measured_seconds": 1.0, "measured_mfu": 0.4, "error": 0.1,
    }  # fmt: skip
    inside, beyond = beyond == "inside", [] if beyond == "inside" else beyond
    trust = {"inside": inside, "region": 2.7, "nearest": [near], "differs": [], "beyond": beyond}
    assert said in " ".join(screen(fake_plan(trust=trust), width=140).split())


def test_warnings_follow_the_answer_and_what_another_option_gives_stands_by_the_alternatives():
    full = "stage 0 fills 99% and may run out; --memory-margin 5% leaves more"
    text = screen(fake_plan(warnings=[full], choices=[{"subject": "--memory-margin 0", "text": "2.0% faster, TP 4"}]))
    assert text.index("Use TP 8") < text.index("\nwarning: stage 0 fills 99%") < text.index("Strategy")
    assert (
        text.index("Alternatives") < text.index("  with --memory-margin 0: 2.0% faster, TP 4") < text.index("Why not")
    )


def test_a_priced_strategy_claims_no_search():
    text = screen(fake_plan(status="feasible", proof=None, alternatives=[]))
    assert text.startswith("TP 8, PP 8 (6 chunks per stage), DP 192: 6.71 s per iteration")
    assert "search: none, one strategy was priced" in text
    assert "Alternatives" not in text


def test_an_infeasible_plan_says_what_works_and_gives_reasons_by_rule_with_counts():
    text = screen(infeasible_plan())
    said = (
        "Nothing that was asked for fits in memory: stage 0 needs 410.6 GiB of memory, 79.2 GiB available. What works: "
    )
    assert " ".join(text.split()).startswith(f"{said}64 GPUs (TP 8, PP 8 fits at 41.2 s per iteration).")
    assert "memory      812  stage 0 needs 410.6 GiB of memory, 79.2 GiB available" in text
    assert "heads        40" in text


def test_a_priced_strategy_that_does_not_fit_is_no_launch():
    refused = [{"rule": "memory", "count": 1, "example": "stage 0 needs 90 GiB"}]
    text = screen(fake_plan(status="infeasible", fits=False, proof=None, rejected=refused))
    assert text.startswith("This strategy does not fit in memory: stage 0 needs 90 GiB.")
    assert text.count("Why not") == 1
    assert "--tensor-model-parallel-size" not in text


def test_a_strategy_that_may_not_fit_is_priced_with_the_doubt():
    text = screen(fake_plan(status="feasible", fits=False, proof=None))
    assert "It is likely to run out of memory." in " ".join(text.split())
    assert "Launch" not in text


def objection(**changes):
    fields = {
        "strategy": strategy(), "pins": {"tp": "16"}, "rules": (), "iteration_seconds": 11.85,
        "best_iteration_seconds": 6.71,
        "terms": {"compute": (5.3, 5.22), "tp": (5.8, 0.66), "cp": (0.0, 0.0)},
        "verdict": "it takes 11.9 s, 77 % longer than 6.71 s",
    }  # fmt: skip
    return WhyNot.model_validate(fields | changes)


def test_why_not_compares_term_by_term():
    text = screen(objection(), draw=render_why_not)
    assert text.startswith("It takes 11.9 s")
    rows = [line.split() for line in text.splitlines()]
    assert ["tensor-parallel", "traffic", "5.80", "s", "0.66", "s", "+5.14", "s"] in rows
    assert ["iteration", "11.85", "s", "6.71", "s", "+5.14", "s"] in rows
    assert not any(row[:1] == ["context-parallel"] for row in rows)


def test_why_not_names_the_rules_that_forbid():
    rule = {"rule": "heads", "count": 3, "example": "tp 5 does not divide the 96 attention heads; 4 and 6 do"}
    forbidden = objection(strategy=None, terms={}, rules=[rule], iteration_seconds=None, verdict="it cannot run")
    text = screen(forbidden, draw=render_why_not, width=60)
    assert "heads" in text
    assert max(map(len, text.splitlines())) <= 60


@each(
    ("shown", "expected"),
    [
        (short_seconds(6.713), "6.71 s"),
        (short_seconds(0.0541), "54.1 ms"),
        (short_seconds(2.5e-5), "25.0 us"),
        (short_seconds(0.9999), "1.00 s"),
        (short_seconds(0.0), "0 s"),
        (short_seconds(8460.0), "2.35 h"),
        (column_seconds(0.06, 5.0), "0.06 s"),
        (column_seconds(0.0123, 0.4), "12.3 ms"),
        (three_digits(1234.5), "1,234"),
        (three_digits(99.96), "100"),
        (three_digits(9.996), "10.0"),
        (format_prefixed(1.875e6), "1.88 M"),
        (format_prefixed(999.6), "1.00 k"),
        (format_prefixed(12.0), "12.0"),
        (format_count(174.6e9), "174.6 B"),
        (format_count(3e11), "300 B"),
        (format_days(0.5), "12.0 hours"),
        (format_days(1e-3), "1.44 minutes"),
        (format_days(2063.0), "5.65 years"),
        (format_energy(252.0), "252 MWh"),
        (format_energy(0.0004), "0.4 kWh"),
        (format_days(30.0), "30.0 days"),
        (plain("a → b × c ☃"), "a -> b x c ?"),
        (bar(0.5, 16, blocks=False), "########"),
        (bar(0.53125, 16, blocks=True), "████████▌"),
        (bar(7.0, 4, blocks=False), "####"),
        (flow(["aaa", "bbb", "ccc"], width=11), "  aaa   bbb\n  ccc"),
    ],
)
def test_numbers_and_bars_read_as_people_write_them(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(("window", "said"), [(4096, "attention within the window"), (None, "full attention")])
def test_an_efficiency_says_which_attention_it_counts(window, said):
    model = fake_plan().request["model"] | {"sliding_window": window}
    asked = fake_plan().request | {"model": model}
    assert f"MFU 52.7 % ({said})" in screen(fake_plan().model_copy(update={"request": asked}))


def test_the_headline_names_the_ranks_that_share_experts():
    found = predict(PlanRequest(model="mixtral-8x7b", gpus=64, pins={"tp": "2", "ep": "8"}))
    assert screen(found).startswith("TP 2, EP 8, DP 32: ")


def rows_printed(width, named):
    console = Console(width=width, record=True, file=io.StringIO())
    long = "all_gather on 1 x 8, a log of a long name.log"
    print_rows([{"note": "short", "what": long, "bias before": "-16.7%", "took": "7.03 ms"}], console, named=named)
    return console.export_text()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("width", [60, 80])
def test_figures_of_a_table_stay_in_one_piece_where_there_is_room(width, named):
    lines = rows_printed(width, named).splitlines()
    assert any("-16.7%" in line and "7.03 ms" in line for line in lines)


@pytest.mark.parametrize("width", [24, 30, 40, 60])
def test_no_sign_of_a_table_is_cut_off(width):
    shown = "".join(rows_printed(width, named=False).replace(":", "").split())  # of a line for every field
    assert sorted(shown) == sorted("".join(rows_printed(400, named=False).split()))


@each("width", range(40, 90, 7))
def test_words_of_a_table_break_only_where_no_column_can_give_way(width):
    words = ("parameter-server", "benchmark", "v100-sxm2-32gb", "0.64")
    console = Console(width=width, record=True, file=io.StringIO())
    row = {"name": "fleet", "title": " ".join(words[:2] * 3), "accelerator": words[2], "price": "0.64 $/h + 21.28 $/h"}
    print_rows([row], console)
    shown = console.export_text()
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    narrowest = sum(2 + len(word) for word in ("fleet", words[0], words[2], "price"))
    assert all(word in shown.split() for word in words) or width < narrowest
