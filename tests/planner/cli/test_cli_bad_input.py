import pytest
from click.testing import CliRunner

import planner.api
from planner.cli import main
from tests.each import each

MODEL, GPUS = ["--model", "22b"], ["--gpus", "64"]
ASK = [*MODEL, *GPUS]
NODE = 'accelerator = "h100-sxm"\ngpus_per_node = 8\n'

CASES = {
    "nothing": ([], "--model is missing"),
    "no gpus": (MODEL, "--gpus is missing"),
    "no gpus of a prediction": (["predict", *MODEL], "--gpus is missing, as in `plan predict --model"),
    "gpus in thousands": ([*MODEL, "--gpus", "12k"], "write 12000"),
    "gpus with an exponent": ([*MODEL, "--gpus", "1e3"], "write 1000"),
    "gpus with a comma": ([*MODEL, "--gpus", "12,288"], "write 12288"),
    "gpus with their name": ([*MODEL, "--gpus", "12288gpus"], "write 12288, got '12288gpus'"),
    "gpus with a point": ([*MODEL, "--gpus", "64.0"], "write 64"),
    "half a gpu": ([*MODEL, "--gpus", "64.5"], "got '64.5'"),
    "no gpu": ([*MODEL, "--gpus", "0"], "at least 1"),
    "negative gpus": ([*MODEL, "--gpus", "-8"], "at least 1"),
    "gpus in words": ([*MODEL, "--gpus", "many"], "got 'many'"),
    "empty gpus": ([*MODEL, "--gpus", ""], "empty"),
    "unicode digits": ([*MODEL, "--gpus", "\uff16\uff14"], "write 64"),
    "a list of gpus": ([*MODEL, "--gpus", "8,16"], "--gpus: expected a whole number such as 64, got '8,16'"),
    "two numbers of gpus": ([*ASK, "--gpus", "16"], "--gpus '64' and --gpus '16' are given; leave one of them out"),
    "a pin by two names": (
        [*ASK, "--tp", "2", "--tensor-model-parallel-size", "4"],
        "--tp '2' and --tensor-model-parallel-size '4' are given",
    ),
    "a switch on and off": (
        [*ASK, "--sequence-parallel", "--no-sequence-parallel"],
        "--sequence-parallel and --no-sequence-parallel are given",
    ),
    "a plan for nobody": (["export", "plan.json"], "plan export needs --to "),
    "a sweep of nothing": (["sweep"], "plan sweep needs more words, such as one of run, status, merge"),
    "underscores": ([*MODEL, "--gpus", "12_288"], "write 12288"),
    "hexadecimal": ([*MODEL, "--gpus", "0x40"], "got '0x40'"),
    "more gpus than there are": ([*MODEL, "--gpus", "99999999999"], "16777216"),
    "absurdly many digits": ([*MODEL, "--gpus", "9" * 5000], "5000 digits"),
    "a forgotten value": (["--model", *GPUS], "got the option '--gpus'"),
    "an empty model": (["--model", "", *GPUS], "empty"),
    "an unknown model": (["--model", "175bb", *GPUS], "did you mean"),
    "a missing file": (["--model", "missing.toml", *GPUS], "missing.toml: no such file"),
    "a cluster as a model": (
        ["--model", "examples/my-cluster.toml", *GPUS],
        "reach, vocab_size and 64 more",
    ),
    "a folder as cluster": ([*ASK, "--cluster", "./"], "folder"),
    "a binary file": (["--model", "{binary}", *GPUS], "not a text file"),
    "broken toml": (["--model", "{broken}", *GPUS], "not TOML"),
    "a path too long": (["--model", "a" * 3000 + "/x.toml", *GPUS], "name too long"),
    "text too long": (["--model", "a" * 9000, *GPUS], "9000 characters"),
    "an unknown cluster": ([*ASK, "--cluster", "dgx-h1000"], "did you mean"),
    "an unknown stack": ([*ASK, "--stack", "megatron-cor"], "did you mean megatron-core"),
    "an unknown precision": ([*ASK, "--precision", "bf17"], "bf16"),
    "an unknown objective": ([*ASK, "--objective", "fun"], "objective"),
    "an unknown option": (["--modl", "22b", *GPUS], "did you mean --model"),
    "a cluster that says how many": ([*MODEL, "--cluster", "examples/my-cluster.toml"], "; my-cluster has 128"),
    "nodes, as launchers take them": (["--model", "22b", "--nodes", "4"], "--gpus takes all of them: nodes times GPUs"),
    "a deadline in other words": (["size", "--days", "30"], "--days; --deadline takes the longest training, as in 30d"),
    "a batch of unknown kind": ([*ASK, "--batch", "4"], "--global-batch takes sequences per iteration, --micro-batch"),
    "a kind of GPU": ([*ASK, "--gpu-type", "a100"], "--cluster names the machines"),
    "a comparison of nothing": (["compare"], "plan compare needs A: a file of a plan, a run or a job"),
    "a batch of tokens": ([*MODEL, *GPUS, "--global-batch", "4M"], "write 4000000, got '4M' (sequences per iteration)"),
    "the beginning of an option": (["--model", "22b", *GPUS, "--images", "2"], "did you mean --images-per-sample?"),
    "an unknown command": (["sovle", *ASK], "did you mean solve"),
    "a command by another word": (["explain", *ASK], "`plan why-not` says why another choice is worse"),
    "a deadline of a plan": ([*ASK, "--deadline", "3d"], "--deadline; `plan size` takes --deadline and --budget"),
    "a pin as one": ([*ASK, "--pin", "tp=4"], "--pin; --tp and every other axis are options, as in --tp 4 --pp ..8"),
    "a framework by its name": ([*ASK, "--framework", "nemo"], "--for takes the framework that starts the plan"),
    "nodes that were lost": (["replan", "p.json", "--lost", "1"], "--lost; --gpus takes the number of GPUs that are"),
    "an option like none": ([*ASK, "--learnt", "1"], "no such option --learnt (`plan --help` shows what there is)"),
    "a study that is not given": (["sweep", "run"], "needs STUDY: a TOML file with lists of values"),
    "a stray word": ([*ASK, "extra"], "extra"),
    "an unknown format": ([*ASK, "--format", "jsn"], "did you mean json"),
    "no batch": ([*ASK, "--global-batch", "0"], "at least 1"),
    "a batch in thousands": ([*ASK, "--global-batch", "2k"], "write 2000"),
    "half a token of a size": (
        ["size", *MODEL, "--gpus", "64", "--deadline", "6d", "--tokens", "1.5"],
        "tokens: expected a whole number such as 300B, got '1.5'",
    ),
    "a sequence of a million and a half": ([*ASK, "--seq-len", "1.5M"], "write 1500000"),
    "a price in words": ([*ASK, "--price", "cheap"], "expected dollars a GPU-hour such as 2.50, got 'cheap'"),
    "a model of a hub": (["--model", "Qwen/Qwen9-7B", *GPUS], "give any other model as a copy of its config.json"),
    "no sequence": ([*ASK, "--seq-len", "-1"], "at least 1"),
    "a sequence past the positions": ([*ASK, "--seq-len", "1000000"], "at most"),
    "tokens in bytes": ([*ASK, "--tokens", "300GB"], "expected a count"),
    "no tokens": ([*ASK, "--tokens", "0"], "tokens"),
    "a half token": ([*ASK, "--tokens", "1.5"], "expected a whole number such as 300B"),
    "negative tokens": ([*ASK, "--tokens", "-3B"], "negative"),
    "tokens beyond counting": ([*ASK, "--tokens", "1e30"], "between 1 and 1e18"),
    "tokens in other digits": ([*ASK, "--tokens", "\u0663\u0660B"], "plain digits"),
    "no time": ([*ASK, "--time-limit", "0"], "--time-limit: expected a time such as 30s"),
    "time in kilometres": ([*ASK, "--time-limit", "3km"], "expected a time"),
    "endless time": ([*ASK, "--time-limit", "inf s"], "a time such as 30s or 2min"),
    "negative alternatives": ([*ASK, "--top", "-1"], "at least 0"),
    "too many alternatives": ([*ASK, "--top", "100000"], "1000"),
    "a pin in words": ([*ASK, "--tp", "eight"], "eight"),
    "ranks for one device": (["--model", "22b", "--gpus", "1", "--tp", "2"], "does not divide 1 GPU; 1 does"),
    "a pin of zero": ([*ASK, "--pp", "0"], "pp"),
    "a negative pin": ([*ASK, "--pp", "-2"], "-2"),
    "an empty range": ([*ASK, "--tp", "8..2"], "empty"),
    "a list with a gap": ([*ASK, "--tp", "4,,8"], "tp"),
    "a pin of thousands of digits": ([*ASK, "--tp", "9" * 5000], "5000 characters"),
    "a stage of ZeRO that is not": ([*ASK, "--zero", "4"], "plan: --zero: 4 does not exist; 0, 1, 2 and 3 do"),
    "adapters by their other name": ([*ASK, "--lora=x"], "plan: --lora: expected a rank"),
    "an unknown schedule": ([*ASK, "--schedule", "2f2b"], "1f1b"),
    "an unknown offload": (
        [*ASK, "--offload", "disk"],
        "there are none, activations, optimizer, optimizer+parameters, any",
    ),
    "a stage of ZeRO by its other name": ([*ASK, "--zero-stage", "4"], "plan: --zero-stage: 4 does not exist"),
    "experts that are not there": ([*ASK, "--expert-imbalance", "1.3"], "plan: --expert-imbalance: model megatron-22b"),
    "8-bit weights in 16 bits": ([*ASK, "--fp8-param-gather"], "plan: --fp8-param-gather needs 8-bit matrix products"),
    "an unknown module": ([*ASK, "--recompute-modules", "none,mlp"], "shared_experts, or none alone"),
    "an unknown order": ([*ASK, "--rank-order", "pp-tp"], "plan: --rank-order: unknown value"),
    "chunks said twice": (
        [*ASK, "--pp", "4", "--vpp", "2", "--num-layers-per-virtual-pipeline-stage", "2"],
        "twice",
    ),
    "chunks without stages": (
        [*ASK, "--num-layers-per-virtual-pipeline-stage", "2"],
        "needs --model and one --pp",
    ),
    "a missing configuration": ([*ASK, "--config", "nowhere.toml"], "no such file"),
    "a folder as configuration": ([*ASK, "--config", "."], "folder"),
    "a field that is not": ([*ASK, "--config", "{typo}"], "did you mean gpus?"),
    "a pin outside its table": ([*ASK, "--config", "{stray}"], "[pins]"),
    "a configuration that is a list": ([*ASK, "--config", "{list}"], "list"),
    "a configuration without end": ([*ASK, "--config", "/dev/zero"], "/dev/zero: more than 16 MiB"),
    "a model without end": (["--model", "/dev/zero", *GPUS], "/dev/zero: more than 16 MiB"),
    "a cluster without end": ([*ASK, "--cluster", "/dev/zero"], "/dev/zero: more than 16 MiB"),
    "a stack without end": ([*ASK, "--stack", "/dev/zero"], "/dev/zero: more than 16 MiB"),
    "a list for a model": (["--config", "{names}"], "model: expected a name, a file or a table of fields, got ['a']"),
    "nothing for a cluster": (
        ["--config", "{null}"],
        "cluster: expected a name, a file or a table of fields, got null",
    ),
    "truth for a number": (["--config", "{truth}"], "gpus: expected a number such as 64, got true"),
    "half a model": (["--config", "{half}"], "model: model 'custom': hidden_size: missing"),
    "half a cluster": (["--config", "{group}"], "cluster: gpus_per_node: expected a whole number"),
    "an inline cluster that is too small": (["--config", "{small}"], "mine has 1 node x 8 = 8 GPUs; 64 were asked for"),
    "a cluster file that is too small": ([*ASK, "--cluster", "{few}"], "few has 2 nodes x 8 = 16 GPUs; 64 were asked"),
    "a node without a network": ([*ASK, "--cluster", "{lone}"], "lone has 1 node x 8 = 8 GPUs; 64 were asked for"),
    "a network slower than any": ([*ASK, "--cluster", "{slow}"], "bandwidth between 1 Mb/s and 100 TB/s"),
    "nobody's cluster": ([*ASK, "--cluster", "~nobody-here/x.toml"], "no such home folder"),
    "nobody's configuration": ([*ASK, "--config", "~nobody-here/x.toml"], "no such home folder"),
    "nobody's output": ([*ASK, "-o", "~nobody-here/x.json"], "no such home folder"),
    "an unknown link": ([*ASK, "--cluster", "{link}"], "`plan list links` shows all"),
    "layers in words": (["predict", *ASK, "--layers-per-stage", "12,x"], "12,x"),
    "layers that make no chunks": (
        ["predict", *ASK, "--pp", "4", "--vpp", "3", "--layers-per-stage", "13,11,12,12"],
        "stage 0 holds 13 layers, which make no 3 equal chunks; 12,12,12,12 would",
    ),
    "no measurements": (["validate", "{empty}"], "no runs in it"),
    "measurements without content": (["validate", "/dev/null"], "/dev/null: no runs in it"),
    "measurements without end": (["validate", "/dev/zero"], "line 1 is longer than 16 MiB"),
    "missing measurements": (["validate", "nowhere.jsonl"], "no such file"),
    "a question for a report": (["report", "{typo}"], "is a question, not an answer; if it is a study: `plan sweep"),
    "a file where options are taken": (["sparse", "x.toml"], "argument (x.toml); `plan sparse --help` shows what it"),
    "a folder without a model": (["predict", "planner", *GPUS], "planner: a folder without a config.json; name the"),
    "no kind": (["list"], "models|clusters"),
    "a word that no entry says": (["list", "clusters", "dgxh100x"], "did you mean dgx-h100"),
    "an unknown kind": (["list", "modles"], "did you mean models"),
    "no name": (["show"], "NAME"),
    "an unknown name": (["show", "h100-sxmm"], "did you mean h100-sxm"),
    "a launcher by its short name": ([*ASK, "--for", "kubernetes"], "`plan export --to jobset` writes its files"),
    "a name that none is like": (["show", "foo"], "the catalogue has no 'foo': `plan list` shows models"),
    "a model that none is like": (["--model", "foo", *GPUS], "unknown model 'foo': `plan list models` shows all"),
    "a name of two things": (["show", "h100"], "--kind"),
    "an unknown document": (["schema", "plans"], "did you mean plan"),
    "an output folder that is not": ([*ASK, "-o", "nowhere/plan.json"], "nowhere"),
    "a folder that takes no files": ([*ASK, "-o", "/proc/x"], "/proc/x cannot be written"),
    "a margin of everything": ([*ASK, "--memory-margin", "100%"], "--memory-margin: expected at most 90 %, got 100 %"),
    "a margin that is no number": ([*ASK, "--memory-margin", "nan"], "expected a number, and nan is none"),
    "a negative time": ([*ASK, "--stability", "detect=-5min"], "expected a time that is not negative, got '-5min'"),
    "a port that is none": (["serve", "--port", "99999999"], "--port: expected at most 65535, got 99999999"),
    "a launcher as a framework": ([*ASK, "--for", "slurm"], "`plan export --to slurm` writes its files"),
    "a value in the place of a file": ([*ASK, "--what-if", "gpus=abc"], "an option is written --gpus abc"),
    "no GPUs to plan again on": (["replan", "x.json"], "needs --gpus N: accelerators that there are now"),
    "a model that is null": (["--model", "{nothing}", *GPUS], "expected a table of fields, got null"),
    "an answer without a schema": (["report", "{object}"], "it has no field schema, plan/1 in such an answer"),
    "an answer as a measured run": (
        ["validate", "{plan}"],
        "the document: expected a measured run (run/1), got plan/1",
    ),
    "an impossible node": ([*ASK, "--cluster", "{node}"], "node.toml: gpus_per_node: expected more than 0, got -8\n"),
    "a character that no name has": (["--model", "22b\x01", *GPUS], "control character '\\x01' stands in '22b\\x01'"),
    "control characters": (["--model", "a\nb\x1b[31m", *GPUS], "the control character '\\x1b' stands in"),
}


@pytest.fixture
def files(tmp_path):
    texts = {
        "broken.toml": "= 3",
        "typo.toml": "gpu = 8",
        "stray.toml": "tp = 8",
        "list.json": "[1, 2]",
        "names.json": '{"model": ["a"], "gpus": 64}',
        "null.json": '{"model": "22b", "gpus": 64, "cluster": null}',
        "truth.json": '{"model": "22b", "gpus": true}',
        "half.json": '{"model": {"num_layers": 4}, "gpus": 64}',
        "group.json": '{"model": "22b", "gpus": 64, "cluster": {"name": "x", "accelerator": "h100-sxm"}}',
        "small.json": '{"model": "22b", "gpus": 64, "cluster": {"name": "mine", "accelerator": "h100-sxm",'
        ' "gpus_per_node": 8, "nodes": 1}}',
        "few.toml": f'name = "few"\n{NODE}nodes = 2\n[network]\nbandwidth = "400 Gb/s"\n',
        "lone.toml": f'name = "lone"\n{NODE}nodes = 1\n',
        "slow.toml": f'name = "slow"\n{NODE}[network]\nbandwidth = "1e-300 Gb/s"\n',
        "link.toml": f'name = "link"\n{NODE}[network]\nlike = "ib-ndr"\n',
        "empty.jsonl": "\n\n",
        "nothing.json": "null",
        "object.json": "{}",
        "plan.json": '{"schema": "plan/1", "status": "optimal"}',
        "node.toml": f'name = "n"\n{NODE.replace("8", "-8", 1)}[network]\nbandwidth = "400 Gb/s"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    return {path.stem: str(path) for path in tmp_path.iterdir()}


@each(("args", "said"), CASES.values(), ids=CASES.keys())
def test_bad_input_ends_with_one_clear_line(args, said, files):
    given = [files.get(word[1:-1], word) if word.startswith("{") else word for word in args]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("plan: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert done.stderr.strip().isprintable()


def test_a_value_of_a_variable_is_refused_under_its_name():
    done = CliRunner().invoke(main, ASK, env={"PLAN_ZERO": "5"})
    assert (done.exit_code, done.stderr) == (2, "plan: PLAN_ZERO: 5 does not exist; 0, 1, 2 and 3 do\n")


@pytest.mark.parametrize("word", ["12288", "+64", " 64 "])
def test_plain_counts_are_taken(word, monkeypatch):
    seen = []
    monkeypatch.setattr(planner.api, "plan", lambda request: seen.append(request.gpus) or _stop())
    CliRunner().invoke(main, [*MODEL, "--gpus", word])
    assert seen == [int(word)]


def _stop():
    raise KeyboardInterrupt


def test_a_strategy_that_does_not_fit_says_where_one_that_does_is_found():
    done = CliRunner().invoke(main, ["predict", "--model", "llama3-70b", "--gpus", "8"])
    assert done.exit_code == 3
    assert "79.1 GiB available; `plan` in place of `plan predict` finds what comes nearest" in done.stderr


def test_tokens_that_experts_drop_are_named_with_the_efficiency():
    ask = ["predict", "--model", "mixtral-8x7b", "--gpus", "64", "--ep", "8", "--tp", "2", "--expert-capacity"]
    told = [CliRunner().invoke(main, [*ask, capacity]).stdout for capacity in ("0.75", "1.25")]
    assert ["experts drop 25%" in " ".join(text.split()) for text in told] == [True, False]


@pytest.mark.parametrize("option", ["--expert-capacity", "--expert-imbalance"])
def test_factors_are_read_from_the_line_and_refused_where_they_are_none(option):
    ask = ["predict", "--model", "mixtral-8x7b", "--gpus", "64", "--ep", "8", "--tp", "2", "--dry-run", option]
    assert CliRunner().invoke(main, [*ask, "1.25"]).exit_code == 0
    done = CliRunner().invoke(main, [*ask, "1,25"])
    assert (done.exit_code, "expected a plain number such as 1.25, got '1,25'" in done.stderr) == (2, True)


def test_a_folder_and_a_link_to_nothing_in_place_of_a_name_are_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, said in (("folder", "this is a folder"), ("loop", "this is a link that leads to no file")):
        for ask in (["--model", name], ["--model", "22b", "--cluster", name]):
            done = CliRunner().invoke(main, [*ask, *GPUS])
            assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
