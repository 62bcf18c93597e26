"""The catalogue: names, aliases, files of the user, and what a wrong one says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from costmodels.model import catalogue
from costmodels.model.model import BadModel
from hardware.errors import BadFile, UnknownName
from tests.each import each

SHAPE = {"num_layers": 4, "hidden_size": 64, "num_heads": 8, "vocab_size": 1000, "seq_length": 128}


def test_a_hub_s_name_that_is_not_known_has_the_nearest_entries():
    with pytest.raises(BadFile, match=r"no such model in the catalogue: did you mean mistral-7b or"):
        catalogue.model("mistralai/Mistral-7B-v0.3")
    with pytest.raises(BadFile, match=r"in the catalogue \(plan list models\); give any other"):
        catalogue.model("nobody/xyzzyq")


@each("name", catalogue.names())
def test_every_entry_loads_and_says_where_it_comes_from(name):
    model = catalogue.model(name)
    assert model.name == name
    assert model.title
    assert model.family != "custom"
    assert len(model.source) > 10


def test_every_alias_means_one_entry_and_hides_none():
    names = set(catalogue.names())
    assert set(catalogue.aliases().values()) <= names
    assert not names & set(catalogue.aliases())


@each(
    ("alias", "name"),
    [
        ("175b", "gpt3-175b"), ("22b", "megatron-22b"), ("530b", "megatron-529.6b"), ("1t", "megatron-1008b"),
        ("145.6b", "megatron-145.6b"), ("LLAMA-3-70B", "llama3-70b"), ("llama3-405b", "llama3.1-405b"),
        ("Qwen2.5-72B", "qwen2.5-72b"), ("bloom", "bloom-176b"), ("yuan-1.0", "yuan1-245b"),
        ("671b", "deepseek-v3"), ("Mixtral", "mixtral-8x7b"), ("qwen3-30b", "qwen3-30b-a3b"),
    ],
)  # fmt: skip
def test_aliases_and_capitals_are_understood(alias, name):
    assert catalogue.model(alias).name == name


def test_an_ambiguous_size_is_unknown_and_suggests():
    with pytest.raises(UnknownName, match="unknown model '17b': did you mean"):
        catalogue.model("17b")
    with pytest.raises(UnknownName, match="unknown model '30b'"):
        catalogue.model("30b")
    with pytest.raises(UnknownName):
        catalogue.model("aliases")


@each(
    ("said", "entry"),
    [
        ("70b", "llama3-70b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama2-70b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("allenai/OLMo-2-1124-7B", "olmo2-7b"),
        ("DeepSeek-V3-Base", "deepseek-v3"),
        ("qwen3.5-35b", "qwen3.5-35b-a3b"),
        ("Llama-4-Scout-17B-16E-Instruct", "llama4-scout"),
        ("qwen3 30b a3b", "qwen3-30b-a3b"),
    ],
)
def test_a_model_is_known_by_the_names_that_people_and_hubs_give_it(said, entry):
    assert catalogue.model(said).name == entry


@pytest.mark.parametrize("said", ["mistralai/Mistral-7B-v0.3", "deepseek-ai/DeepSeek-V5", "Qwen/Qwen3-8B-FP8"])
def test_another_version_or_format_of_weights_is_another_model(said):
    with pytest.raises(BadFile, match=r"give any other model as a copy of its config\.json"):
        catalogue.model(said)


@pytest.mark.parametrize("said", ["unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "nvidia/Llama-3.3-70B-Instruct-NVFP4"])
def test_weights_in_another_format_are_told_the_entry_of_the_same_sizes(said):
    with pytest.raises(BadFile, match=r"did you mean llama3-70b\? its sizes are the same"):
        catalogue.model(said)


def test_a_toml_file_of_the_user_is_a_model(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in SHAPE.items()))
    assert catalogue.model(str(path)).name == "mine"
    path.write_text("[model]\n" + path.read_text())
    assert catalogue.model(str(path)).num_layers == 4


def test_a_toml_file_of_the_user_may_have_tables_of_experts_and_latents(tmp_path):
    path = tmp_path / "mine.toml"
    sizes = "\n".join(f"{key} = {value}" for key, value in SHAPE.items())
    latents = "[mla]\nkv_lora_rank = 16\nqk_nope_head_dim = 8\nqk_rope_head_dim = 4\nv_head_dim = 8\n"
    path.write_text(f"{sizes}\n{latents}[moe]\nnum_experts = 4\ntop_k = 2\nexpert_ffn_hidden_size = 96\n")
    model = catalogue.model(str(path))
    assert (model.num_moe_layers, model.moe.num_experts, model.mla.qk_head_dim) == (4, 4, 12)


def test_a_json_file_and_a_hugging_face_directory_are_models(tmp_path):
    (tmp_path / "mine.json").write_text(json.dumps(SHAPE))
    assert catalogue.model(str(tmp_path / "mine.json")).hidden_size == 64
    folder = tmp_path / "Some-Llama"
    folder.mkdir()
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
        "intermediate_size": 176, "vocab_size": 512, "max_position_embeddings": 128,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    for path in (folder, folder / "config.json"):
        model = catalogue.model(str(path))
        assert (model.name, model.gated_ffn) == ("Some-Llama", True)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.toml", b"num_layers = ", "not TOML"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b"", "not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"[1]", "expected a table of fields, got a list"),
        ("a.json", b"null", "expected a table of fields, got null"),
        ("a.json", b"\xff\xfe", "not a text file in UTF-8"),
        ("a.json", b"{}", "hidden_size: missing"),
        ("a.json", b'{"model_type": "perceiver"}', "'perceiver' is not supported"),
        ("a.json", b'{"model_type": "llama"}', "vocab_size: missing"),
        ("a.json", b'{"model_type": 7}', "neither as model_type nor as architectures"),
        ("a.toml", b"num_heads = 1979-05-27", "hidden_size: missing"),
        ("a.toml", b"hidden_size = 64\nn_head = 8", "n_head: there is no such field; did you mean num_heads"),
        (
            "a.json",
            b'{"hidden_size": 64, "num_attention_heads": 8}',
            "model_type: missing, though there is num_attention_heads",
        ),
        ("a.json", b" " * (16 * 2**20 + 1), "more than 16 MiB"),
    ],
)
def test_a_useless_file_is_one_line_with_its_path(tmp_path, file, content, message):
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(BadFile, match=message) as caught:
        catalogue.model(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_nobodys_error(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(SHAPE), encoding="utf-8-sig")
    assert catalogue.model(str(path)).num_layers == 4


def test_a_device_is_no_model_and_is_not_read_for_ever():
    with pytest.raises(BadFile, match="/dev/zero: more than 16 MiB"):
        catalogue.model("/dev/zero")


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(BadFile, match="no such file"):
        catalogue.model(str(tmp_path / "none.toml"))
    with pytest.raises(BadFile, match="no such file"):
        catalogue.model("../none")
    with pytest.raises(BadFile, match="no such file"):
        catalogue.model(str(tmp_path) + os.sep)


def test_bad_model_is_not_raised_bare_from_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(SHAPE | {"num_query_groups": 5}))
    with pytest.raises(BadFile, match="5 does not divide") as caught:
        catalogue.model(str(path))
    assert not isinstance(caught.value, BadModel)


def test_one_model_opens_its_own_file_and_at_most_the_aliases(monkeypatch):
    opened = []
    really_open = Path.open

    def spy(path, *args, **kwargs):
        opened.append(path.name)
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", spy)
    for known in (catalogue.names, catalogue.aliases, catalogue._shipped):
        known.cache_clear()
    catalogue.model("llama3-8b")
    assert opened == ["llama3-8b.toml"]
    catalogue.model("175b")
    assert opened[1:] == ["aliases.toml", "gpt3-175b.toml"]


def test_looking_a_model_up_imports_nothing_heavy():
    code = (
        "import sys; from costmodels.model.catalogue import model; model('175b'); "
        "print([name for name in ('numpy', 'scipy', 'ortools', 'rich', 'torch') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
