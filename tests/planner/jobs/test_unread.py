"""Frameworks that are known and not read: named in one line, and never taken for another."""

import pytest

from planner.errors import MeshwrightError
from planner.jobs.reader import Context
from planner.jobs.readers import forms, read_job


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.sh", "colossalai run --nproc_per_node 8 train.py --micro_batch_size 8 --max_length 4096", "ColossalAI"),
        ("a.sh", "NPROC_PER_NODE=8 xtuner train internlm2_7b_qlora --deepspeed deepspeed_zero2", "xtuner"),
        ("a.py", "from xtuner.model import SupervisedFinetune\nbatch_size = 1\n", "xtuner"),
        ("a.yaml", "model: {d_model: 8, n_layers: 2, mlp_ratio: 8}\ndevice_train_microbatch_size: 2\n", "OLMo"),
        ("a.yaml", "model: {model_path: a}\ntrain: {micro_batch_size: 1, global_batch_size: 8}\n", "VeOmni"),
        ("a.toml", "[model]\nname = 'a'\n[data]\nmicro_batch_size = 1\n[optim]\nlr = 1e-5\n", "prime-rl"),
        ("a.yaml", "step_scheduler: {global_batch_size: 8}\ndistributed: {tp_size: 1}\nmodel: {}\n", "NeMo Automodel"),
        ("a.yaml", "data: !include x.yaml\nmodel:\n  type: gpt2\n  hidden_dim: 64\ntrainer:\n  train_batch_size: 8\n",
         "Levanter"),
    ],
)  # fmt: skip
def test_it_is_named_with_what_says_its_job(tmp_path, name, text, title):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(MeshwrightError, match=f"{title} is known and not read; say its job by options: --model"):
        read_job([path], Context())


def test_no_kind_is_said_of_what_is_not_read():
    assert "" not in forms()
