"""Kubernetes: exported manifests through the published models and schemas, field by field."""

import re

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models

from planner.jobs.registry import TARGETS, export
from tests.conformance.plans import label, random_plans

FRAMEWORKS = ("megatron-lm", "torchtitan", "deepspeed", "accelerate")
PLANS = [plan for name in FRAMEWORKS for plan in random_plans(name, 52, seed=21, precisions=("bf16",))]


def manifest(plan, target):
    exported = export(plan, target)
    assert "/" not in target
    (text, *_) = exported.files.values()
    return yaml.safe_load(text)


def same(model, document):
    """Parsed by the model and written again, nothing is lost: an unknown key would be."""
    assert model.from_dict(document).to_dict() == document


def valid_pod(spec):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.37", strict=True)


def launched(spec, nodes, each):
    """The pod starts one torchrun of a node's ranks and asks for its devices."""
    valid_pod(spec)
    (container,) = spec["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(each)
    assert f"--nnodes {nodes} --nproc-per-node {each} " in container["command"][-1]


def machines(plan):
    cluster = plan.request["cluster"]
    return cluster["nodes"], cluster["gpus_per_node"]


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_trainjob_has_the_nodes_and_ranks_of_the_plan(plan):
    document = manifest(plan, "kubeflow-trainjob")
    same(models.TrainerV1alpha1TrainJob, document)
    nodes, each = machines(plan)
    trainer = document["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (nodes, each), label(plan)


@pytest.mark.parametrize("target", ["jobset", "kueue"])
@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_jobset_has_as_many_pods_as_the_plan_has_nodes(plan, target):
    document = manifest(plan, target)
    same(models.JobsetV1alpha2JobSet, document)
    nodes, each = machines(plan)
    (replicated,) = document["spec"]["replicatedJobs"]
    batch = replicated["template"]["spec"]
    assert replicated["replicas"] * batch["parallelism"] == nodes, label(plan)
    assert batch["parallelism"] == batch["completions"]
    kubernetes_validate.validate(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": batch}, "1.37", strict=True
    )
    launched(batch["template"]["spec"], nodes, each)
    size = batch["template"].get("metadata", {}).get("annotations", {}).get("kueue.x-k8s.io/podset-slice-size")
    assert size is None or nodes % int(size) == 0


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
def test_a_volcano_job_is_a_gang_of_all_nodes_in_equal_partitions(plan):
    document = manifest(plan, "volcano")
    nodes, each = machines(plan)
    (task,) = document["spec"]["tasks"]
    assert document["spec"]["minAvailable"] == task["replicas"] == nodes
    launched(task["template"]["spec"], nodes, each)
    if policy := task.get("partitionPolicy"):
        assert policy["totalPartitions"] * policy["partitionSize"] == nodes


def test_an_unknown_key_would_be_seen():
    document = manifest(PLANS[0], "kubeflow-trainjob")
    document["spec"]["trainer"]["numNode"] = 3
    with pytest.raises((AssertionError, ValueError)):
        same(models.TrainerV1alpha1TrainJob, document)


def test_every_name_is_one_that_kubernetes_takes():
    for target in ("jobset", "kueue", "volcano", "kubeflow-trainjob"):
        assert TARGETS[target].start
        name = manifest(PLANS[1], target)["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
