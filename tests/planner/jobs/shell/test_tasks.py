"""Scripts that stand in files of Kubernetes and SkyPilot: as a shell would run them, on all that the task asks for."""

import json
from pathlib import Path

import pytest

from planner import PlanRequest, plan
from planner.errors import BadFile
from planner.jobs.reader import Context, JobFile
from planner.jobs.readers import read_job
from planner.jobs.registry import export
from planner.jobs.yaml_text import yaml_text

SIZES = "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000"
SIZES += " --max-position-embeddings 1024 --micro-batch-size 1 --bf16"
SKY = f"""
resources: {{accelerators: "H100:8"}}
num_nodes: 2
envs: {{TP: 4}}
run: |
  cd /app
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc-per-node $SKYPILOT_NUM_GPUS_PER_NODE pretrain_gpt.py {SIZES} \\
    --tensor-model-parallel-size $TP
"""


def job_of(text, name="task.yaml"):
    return read_job([JobFile(Path(name), text)], Context(disk=False))


def pods(command):
    """A job of one master and three workers, of eight GPUs each."""
    limits = {"limits": {"nvidia.com/gpu": 8}}
    container = {"name": "a", "command": command, "env": [{"name": "TP", "value": "4"}], "resources": limits}
    helper = {"name": "b", "command": ["sleep", "10"]}
    pod = {"template": {"spec": {"containers": [container, helper]}}}
    roles = {"Master": {"replicas": 1, **pod}, "Worker": {"replicas": 3, **pod}}
    return json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles}})


def test_a_task_of_skypilot_starts_what_it_runs_on_the_nodes_that_it_asks_for():
    found = job_of(SKY)
    assert (found.job.fields["gpus"], found.job.pins["tp"], found.job.missing) == (16, 4, ())
    assert SKY.splitlines()[found.parts[0].line - 1].strip().startswith("torchrun")


@pytest.mark.parametrize(
    ("asked", "cluster"),
    [('"A100:8"', "dgx-a100-40gb"), ("{A100-80GB: 8}", "dgx-a100-80gb"), ("[H100:8, A100:8]", None), ("Zog:8", None)],
)
def test_accelerators_that_a_task_asks_for_are_its_machines_or_asked_about(asked, cluster):
    job = job_of(SKY.replace('"H100:8"', asked).replace("$SKYPILOT_NUM_GPUS_PER_NODE", "8")).job
    assert job.fields.get("cluster") == cluster
    assert job.asks_for("cluster") == (cluster is None)


SCRIPT = f"torchrun --nnodes $WORLD_SIZE --nproc-per-node 8 a.py {SIZES} --tensor-model-parallel-size $TP"


@pytest.mark.parametrize(
    "command", [["torchrun", "a.py", *SIZES.split(), "--tensor-model-parallel-size", "$(TP)"], ["bash", "-lc", SCRIPT]]
)
def test_copies_of_a_pod_are_the_nodes_of_what_its_containers_run(command):
    settings = "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n---\n"
    for text in (pods(command), settings + yaml_text(json.loads(pods(command)))):
        job = job_of(text).job
        assert (job.fields["gpus"], job.pins["tp"], job.missing) == (32, 4, ())


def test_files_of_clouds_that_were_written_are_read_back():
    found = plan(PlanRequest(model="llama3.2-1b", gpus=16, cluster="dgx-h100", framework="megatron-lm", top=0))
    for target in ("skypilot", "jobset", "kueue", "volcano", "kubeflow-trainjob"):
        name, text = next(iter(export(found, target).files.items()))
        job = job_of(text, name).job
        assert (job.fields["gpus"], job.pins["tp"], job.pins["pp"]) == (16, found.strategy.tp, found.strategy.pp), (
            target
        )
        assert job.fields["global_batch_size"] == found.strategy.global_batch_size


def test_a_file_of_a_cluster_that_runs_nothing_stays_as_it_is():
    with pytest.raises(BadFile, match="YAML of another kind, with apiVersion"):
        job_of("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
