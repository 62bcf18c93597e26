"""Kubernetes: Kubeflow TrainJob, JobSet, the same queued by Kueue, and Volcano Job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.launchers.torchrun import launch_words, locality, program_files, program_words
from planner.jobs.options import present
from planner.jobs.yaml_text import yaml_text

GPU: Final = "nvidia.com/gpu"
IMAGE: Final = "train:latest"
LEVEL: Final = "cloud.provider.com/topology-block"
"""The label of a domain in Kueue's documentation; a cluster has its own."""
_ROLE: Final = "node"


def trainjob(job: Job, version: str, program: Export) -> Export:
    """A TrainJob of Kubeflow Trainer 2: its torch runtime tells torchrun nodes, rank and address."""
    trainer = present(
        image=IMAGE,
        command=["torchrun"],
        args=[*program_words(program)],
        env=_variables(program.environment) or None,
        numNodes=job.node_count,
        numProcPerNode=job.gpus_per_node,
        resourcesPerNode=_resources(job),
    )
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }
    return _written("trainjob.yaml", document, f"Kubeflow Trainer {version}", program)


def jobset(job: Job, version: str, program: Export) -> Export:
    """A JobSet: a Job for every group of nodes that has to be near, each kept in a domain of its own."""
    return _written("jobset.yaml", _jobset(job, program, {}, {}), f"JobSet {version}", program)


def kueue(job: Job, version: str, program: Export) -> Export:
    """A JobSet that Kueue admits: pods are placed in rank order, in slices that stay in one domain."""
    near = locality(job)
    slices = {"podset-slice-required-topology": LEVEL, "podset-slice-size": str(near)} if near > 1 else {}
    placed = {
        f"kueue.x-k8s.io/{name}": value for name, value in ({"podset-preferred-topology": LEVEL} | slices).items()
    }
    document = _jobset(job, program, {"kueue.x-k8s.io/queue-name": "user-queue"}, placed, whole=True)
    remark = f"{LEVEL} and user-queue stand for the cluster's own topology label and queue"
    return _written("kueue.yaml", document, f"Kueue {version}", program, remark)


def volcano(job: Job, version: str, program: Export) -> Export:
    """A Volcano Job: all nodes or none, in partitions that stay near."""
    near = locality(job)
    partition = {
        "totalPartitions": job.node_count // near,
        "partitionSize": near,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    task = present(
        name=_ROLE,
        replicas=job.node_count,
        partitionPolicy=partition if near > 1 else None,
        template={"spec": _pod(job, program, rank="$VC_TASK_INDEX", address=f"{job.name}-{_ROLE}-0.{job.name}")},
    )
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": job.name},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": job.node_count,
            "plugins": {"svc": [], "env": []},
            "networkTopology": {"mode": "soft"},
            "tasks": [task],
        },
    }
    return _written("volcano.yaml", document, f"Volcano {version}", program)


def _jobset(
    job: Job, program: Export, labels: Mapping[str, str], placed: Mapping[str, str], *, whole: bool = False
) -> dict[str, Any]:
    """One Job of all nodes where the queue places slices, else one Job for each group."""
    near = job.node_count if whole else locality(job)
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": LEVEL} if near > 1 and not whole else None
    rank = f"$((JOB_INDEX * {near} + JOB_COMPLETION_INDEX))"
    pod = _pod(job, program, rank=rank, address=f"{job.name}-{_ROLE}-0-0.{job.name}", index=True)
    template = present(metadata={"annotations": dict(placed)} if placed else None, spec=pod)
    batch = {
        "parallelism": near,
        "completions": near,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": present(name=job.name, labels=dict(labels) or None, annotations=exclusive),
        "spec": present(
            network={"enableDNSHostnames": True},
            failurePolicy={"maxRestarts": 0},
            suspend=True if labels else None,
            replicatedJobs=[{"name": _ROLE, "replicas": job.node_count // near, "template": {"spec": batch}}],
        ),
    }


def _pod(job: Job, program: Export, *, rank: str, address: str, index: bool = False) -> dict[str, Any]:
    script = f"exec {launch_words(job, rank=rank, address=address)} {shlex.join(program_words(program))}"
    place = {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/job-index']"}}
    variables = _variables(program.environment) + ([{"name": "JOB_INDEX", "valueFrom": place}] if index else [])
    command = ["bash", "-c", script]
    container = present(name="train", image=IMAGE, command=command, env=variables or None, resources=_resources(job))
    return {"restartPolicy": "Never", "containers": [container]}


def _resources(job: Job) -> dict[str, Any]:
    return {"limits": {GPU: str(job.gpus_per_node)}}


def _variables(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in environment.items()]


def _written(name: str, document: Mapping[str, Any], target: str, program: Export, *more: str) -> Export:
    files = program_files(program)
    held = f" ({', '.join(files)})" if files else ""
    remarks = (*program.remarks, f"{IMAGE} stands for an image that holds the program and its files{held}", *more)
    return Export(files={name: shell.commented(target, remarks, yaml_text(document))} | files, remarks=remarks)
