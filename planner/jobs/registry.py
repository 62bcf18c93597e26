"""The table of frameworks and launchers: titles, versions and writers, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from planner.answer.plan import Plan
from planner.errors import BadRequest, UnknownName
from planner.frameworks.registry import ANY, FRAMEWORKS, framework_of
from planner.frameworks.vendors import TPU, XLA
from planner.jobs.accelerate.write import accelerate
from planner.jobs.deepspeed import options as deepspeed_options
from planner.jobs.deepspeed.write import deepspeed
from planner.jobs.job import Export, Job, Write, broken, job_of, refuse, uncarried_choices
from planner.jobs.launchers.kubernetes import jobset, kueue, trainjob, volcano
from planner.jobs.launchers.torchrun import ray, skypilot, slurm, torchrun
from planner.jobs.maxtext.write import maxtext
from planner.jobs.megatron import options as megatron_options
from planner.jobs.megatron.bridge import CARRIED as BRIDGE_CARRIED
from planner.jobs.megatron.bridge import bridge
from planner.jobs.megatron.write import megatron
from planner.jobs.nanotron import options as nanotron_options
from planner.jobs.nanotron.write import nanotron
from planner.jobs.paddle.write import paddle
from planner.jobs.pytorch.write import pytorch
from planner.jobs.torchtitan.write import torchtitan
from planner.jobs.trainers.write import CARRIED as TRAINERS_CARRIED
from planner.jobs.trainers.write import recipe

Start = Callable[[Job, str, Export], Export]
"""A launcher: a job, the launcher's version, and what the framework runs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A framework or a launcher that plans are written for."""

    name: str
    title: str
    versions: tuple[str, ...]
    """Versions whose surface is known, the usual one first."""
    checked: str
    """What reads the exports in the tests: the real thing, or why it cannot."""
    write: Write | None = None
    start: Start | None = None
    carries: tuple[str, ...] = ()
    """Choices and paths of changes that its files have, or that their exporter remarks on."""

    @property
    def kind(self) -> Literal["framework", "launcher", "recipe"]:
        """A framework reads degrees, a launcher starts a plan's framework, a recipe is that of a trainer on one."""
        if self.start:
            return "launcher"
        return "framework" if self.name in FRAMEWORKS else "recipe"


TARGETS: Final[Mapping[str, Target]] = {target.name: target for target in (
    Target("megatron-lm", "Megatron-LM arguments and variables", ("0.19", "0.17"),
           "megatron.training parses and validates them, builds groups and counts layers of every stage", megatron,
           carries=megatron_options.CARRIED),
    Target("megatron-bridge", "Megatron-Bridge recipe overrides", ("0.6",),
           "names and values by Megatron-Core's configurations; the package itself needs a GPU's libraries", bridge,
           carries=BRIDGE_CARRIED),
    Target("deepspeed", "DeepSpeed JSON", ("0.19",), "DeepSpeedConfig on a simulated world", deepspeed,
           carries=deepspeed_options.CARRIED),
    Target("torchtitan", "torchtitan configuration", ("0.3", "0.2"),
           "ConfigManager, ParallelDims, device meshes and schedules of both versions", torchtitan),
    Target("accelerate", "Hugging Face Accelerate YAML", ("1.15",),
           "the launcher's loader and checks, the variables that it sets, ParallelismConfig", accelerate),
    Target("pytorch", "PyTorch device mesh, FSDP2 and pipelining", ("2.13",),
           "PyTorch itself: meshes of the whole world, shards on meta tensors, schedules", pytorch),
    Target("paddle", "PaddleFormers training arguments", ("1.2",),
           "TrainingArguments up to fleet.init, and the hybrid_configs that it makes", paddle),
    Target("nanotron", "nanotron YAML", ("2411b02", "0.4"),
           "the parser and the cut of 0.4, its logging replaced, which imports itself; 2411b02 is in no package index",
           nanotron, carries=nanotron_options.CARRIED),
    Target("maxtext", "MaxText configuration", ("0.2.5",),
           "pyconfig, and the mesh of JAX over simulated devices", maxtext, carries=("optimizer",)),
    Target("trl", "TRL recipe with DeepSpeed JSON or Accelerate YAML", ("1.16",), "its own reader", recipe("trl"),
           carries=TRAINERS_CARRIED),
    Target("llamafactory", "LLaMA-Factory recipe with DeepSpeed JSON or Accelerate YAML", ("0.9",), "its own reader",
           recipe("llamafactory"), carries=TRAINERS_CARRIED),
    Target("axolotl", "axolotl YAML with DeepSpeed JSON", ("0.21",), "its own reader", recipe("axolotl"),
           carries=TRAINERS_CARRIED),
    Target("swift", "ms-swift arguments with DeepSpeed JSON", ("4.6",), "its own reader", recipe("swift"),
           carries=TRAINERS_CARRIED),
    Target("torchrun", "torchrun script", ("2.13",), "torch.distributed.run", start=torchrun),
    Target("slurm", "Slurm batch script", ("22.05", "24.05"),
           "sbatch --test-only on a simulated cluster of 22.05; no parser of 24.05 installs here", start=slurm),
    Target("kubeflow-trainjob", "Kubeflow TrainJob", ("2.3",), "the models of kubeflow-trainer-api, round trip",
           start=trainjob),
    Target("jobset", "Kubernetes JobSet", ("0.10",),
           "the models of kubeflow-trainer-api, round trip; kubernetes-validate on its Job", start=jobset),
    Target("kueue", "JobSet queued by Kueue", ("0.14",), "as jobset; Kueue itself is a controller", start=kueue),
    Target("volcano", "Volcano Job", ("1.13",),
           "kubernetes-validate on its pods; its schema is in no package index", start=volcano),
    Target("ray", "Ray driver with placement groups", ("2.60",), "a simulated Ray cluster", start=ray),
    Target("skypilot", "SkyPilot task YAML", ("0.14",), "sky.Task.from_yaml_config", start=skypilot),
)}  # fmt: skip
"""Every target by name."""

SHORT: Final[Mapping[str, str]] = {"megatron": "megatron-lm", "nemo": "megatron-bridge", "kubernetes": "jobset"}
"""Other names of targets: of NeMo's recipes for language models, and of what Kubernetes has for jobs of many nodes."""


def target(name: str) -> Target:
    """A target by name, or by a short one; ``UnknownName`` has the nearest names where there is none."""
    lowered = name.strip().lower()
    known = SHORT.get(lowered, lowered)
    if known not in TARGETS:
        raise UnknownName("exporter", name, (*TARGETS, *SHORT))
    return TARGETS[known]


def export(plan: Plan, name: str, *, version: str | None = None) -> Export:
    """The files that start a plan.

    Args:
        plan: an answer with a strategy.
        name: one of ``TARGETS``.
        version: the target's, one of its ``versions``; None is the usual one.

    Raises:
        Inexpressible: the target lacks a part of the plan.
        UnknownName: no such target.
        BadRequest: no such version.
    """
    chosen, job = target(name), job_of(plan)
    wanted = version or chosen.versions[0]
    if wanted not in chosen.versions:
        raise BadRequest(f"{chosen.name} is written for version {' and '.join(chosen.versions)}, not {wanted}")
    if chosen.write:
        _check(job, chosen, wanted)
        return _with_unsaid(chosen.write(job, wanted), job, chosen.name)
    assert chosen.start
    why = f"starts torchrun, which needs GPUs, and {job.nodes[0].accelerator} is not one"
    refuse(chosen.name, [(job.vendor == TPU, f"{why}; --to {XLA} writes what every host runs")])
    return _with_unsaid(chosen.start(job, wanted, _program(job)), job, _framework(job) or chosen.name)


def _framework(job: Job) -> str | None:
    """The target that writes what a launcher starts."""
    asked = job.asked("framework")
    return asked if asked and asked != ANY else framework_of(job.stack, adapters=job.adapters)


def _with_unsaid(made: Export, job: Job, name: str) -> Export:
    """The export, with remarks on all that was priced and its files leave to the reader."""
    carried = name == "megatron-bridge" or "adapters" in TARGETS[name].carries
    adapters = None if carried else job.adapters
    adapted = (f"the plan trains adapters {adapters}; add them in the script",) if adapters else ()
    more = (*adapted, *_other_stack(job, name), *uncarried_choices(job.plan.request, name, TARGETS[name].carries))
    return replace(made, remarks=(*made.remarks, *more))


def _other_stack(job: Job, name: str) -> tuple[str, ...]:
    """That the kernels and the overlap that were priced are not the framework's own."""
    if name not in FRAMEWORKS or name == framework_of(job.stack) or job.stack == (own := FRAMEWORKS[name].stack):
        return ()
    return (f"kernels, overlap and dropout were priced for stack {job.stack}; plan --for {name} prices {own}",)


def _program(job: Job) -> Export:
    """What the plan's framework runs, else its stack's; a stack without a target leaves the program to the reader."""
    name = _framework(job)
    if name is None:
        own = f"train.py stands for the program of stack {job.stack}; give it the plan that --format env writes"
        return Export(files={}, remarks=(own,))
    framework = TARGETS[name]
    assert framework.write
    _check(job, framework, framework.versions[0])
    return framework.write(job, framework.versions[0])


def _check(job: Job, framework: Target, version: str) -> None:
    """Refuse what breaks a rule of a framework's version; what an older one lacks itself is its exporter's to say."""
    if framework.name in FRAMEWORKS:
        lacks = broken(job, framework.name, version=version if version != framework.versions[0] else "")
        refuse(f"{framework.name} cannot start this plan:", ((True, lack) for lack in lacks))
