"""Kubernetes: Kubeflow TrainJob, JobSet, the same queued by Kueue, and Volcano Job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from planner.jobs.job import Export, Job
from planner.jobs.launchers import shell
from planner.jobs.launchers.torchrun import launch_words, locality, program_files, program_words
from planner.jobs.values import template
from planner.jobs.yaml_text import parse_yaml, yaml_text

GPU: Final = "nvidia.com/gpu"
IMAGE: Final = "train:latest"
LEVEL: Final = "cloud.provider.com/topology-block"
"""The label of a domain in Kueue's documentation; a cluster has its own."""


def _filled(at: Any, values: Mapping[str, Any]) -> Any:
    """A document with values in the places that its file has for them, without the keys that get none."""
    if isinstance(at, Mapping):
        return {key: value for key, one in at.items() if (value := _filled(one, values)) is not None}
    if isinstance(at, list):
        return [_filled(one, values) for one in at]
    return values[at[1:]] if isinstance(at, str) and at.startswith("$") else at


def _document(kind: str, job: Job, program: Export, **values: Any) -> Any:
    """A document of a job, with what is the same in every kind; ``index`` is a variable more."""
    variables: list[Any] = [{"name": name, "value": value} for name, value in program.environment.items()]
    variables += [values["index"]] if values.get("index") else []
    resources = {"limits": {GPU: str(job.gpus_per_node)}}
    usual = {"name": job.name, "image": IMAGE, "nodes": job.node_count, "each": job.gpus_per_node}
    document = parse_yaml(template("launchers/kubernetes.yaml"))[kind]
    return _filled(document, usual | {"variables": variables or None, "resources": resources} | values)


def trainjob(job: Job, version: str, program: Export) -> Export:
    """A TrainJob of Kubeflow Trainer 2: its torch runtime gives torchrun nodes, rank and address."""
    document = _document("trainjob", job, program, words=[*program_words(program)])
    return _written("trainjob.yaml", document, f"Kubeflow Trainer {version}", program)


def jobset(job: Job, version: str, program: Export) -> Export:
    """A JobSet: a Job for every group of nodes that has to be near, each kept in a domain of its own."""
    near = locality(job)
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": LEVEL} if near > 1 else None
    document = _jobset(job, program, near, exclusive=exclusive, labels=None, suspend=None, placed=None)
    return _written("jobset.yaml", document, f"JobSet {version}", program)


def kueue(job: Job, version: str, program: Export) -> Export:
    """A JobSet that Kueue admits: pods of one Job are placed in rank order, in slices that stay in one domain."""
    near = locality(job)
    slices = {"podset-slice-required-topology": LEVEL, "podset-slice-size": str(near)} if near > 1 else {}
    notes = {f"kueue.x-k8s.io/{name}": value for name, value in ({"podset-preferred-topology": LEVEL} | slices).items()}
    labels, placed = {"kueue.x-k8s.io/queue-name": "user-queue"}, {"annotations": notes}
    document = _jobset(job, program, job.node_count, exclusive=None, labels=labels, suspend=True, placed=placed)
    remark = f"{LEVEL} and user-queue stand for the cluster's own topology label and queue"
    return _written("kueue.yaml", document, f"Kueue {version}", program, remark)


def volcano(job: Job, version: str, program: Export) -> Export:
    """A Volcano Job: all nodes or none, in partitions that stay near."""
    near = locality(job)
    topology = {"mode": "hard", "highestTierAllowed": 1}
    parts = {"totalPartitions": job.node_count // near, "partitionSize": near, "networkTopology": topology}
    pod = _pod(job, program, rank="$VC_TASK_INDEX", address=f"{job.name}-node-0.{job.name}")
    document = _document("volcano", job, program, partition=parts if near > 1 else None, pod=pod)
    return _written("volcano.yaml", document, f"Volcano {version}", program)


def _jobset(job: Job, program: Export, near: int, **values: Any) -> Any:
    """Jobs of so many nodes each."""
    rank, address = f"$((JOB_INDEX * {near} + JOB_COMPLETION_INDEX))", f"{job.name}-node-0-0.{job.name}"
    place = {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/job-index']"}}
    pod = _pod(job, program, rank=rank, address=address, index={"name": "JOB_INDEX", "valueFrom": place})
    return _document("jobset", job, program, near=near, replicas=job.node_count // near, pod=pod, **values)


def _pod(job: Job, program: Export, *, rank: str, address: str, index: Mapping[str, Any] | None = None) -> Any:
    script = f"exec {launch_words(job, rank=rank, address=address)} {shlex.join(program_words(program))}"
    return _document("pod", job, program, script=script, index=index)


def _written(name: str, document: Mapping[str, Any], target: str, program: Export, *more: str) -> Export:
    files = program_files(program)
    held = f" ({', '.join(files)})" if files else ""
    remarks = (*program.remarks, f"{IMAGE} stands for an image that holds the program and its files{held}", *more)
    return Export(files={name: shell.commented(target, remarks, yaml_text(document))} | files, remarks=remarks)
