"""Accelerators and clusters by name or from a file.

A cluster of one's own is a TOML (or JSON) file of about ten lines; ``examples/my-cluster.toml`` is one. ::

    name = "my-cluster"
    accelerator = "h100-sxm"        # a name of `plan list accelerators`, or an [accelerator] table
    gpus_per_node = 8
    nodes = 16                      # optional: no plan gets more; without it there are as many as asked for

    [network]                       # between nodes; per GPU and direction
    bandwidth = "400 Gb/s"
    latency = "5 us"                # optional: time of one hop, as every further field of a link
    like = "ib-ndr400"              # optional: whose measured efficiency to assume

Optional fields: ``title``, ``power_limit`` ("500 W", to which every device is held), ``host_memory``, ``host_link``,
``host_bandwidth``, ``node_power_overhead``, ``price`` ("2.95 $/h" per GPU), ``[scale_up]`` for the links inside the
node (``like``, ``bandwidth``, ``domain`` where it is larger than the node), and instead of ``[network]`` several
``[[tiers]]``, inner to outer, each with ``name``, ``domain`` (GPUs below one switch of the tier, 0 for the last),
``bandwidth`` and, if it is more than 1, ``oversubscription``.

A machine that the catalogue does not hold is a table; what it leaves out is as in ``like``. ::

    [accelerator]
    name = "my-gpu"
    like = "h100-sxm"
    memory = "120 GB"
    memory_bandwidth = "5 TB/s"
    [accelerator.peak]
    bf16 = "1200 TFLOP/s"

A mixed cluster lists ``[[groups]]``, each with a ``name``, the fields from ``accelerator`` to ``[network]`` above,
and ``nodes``. Two groups meet over the slower of their networks, unless a link between them is given::

    [[between]]
    groups = ["old", "new"]
    bandwidth = "100 Gb/s"          # per GPU and direction, as in [network]; with like, latency as there

Quantities carry their unit; a bare number is an error.
"""

from functools import cache
from pathlib import Path

from hardware import files
from hardware.assembly import accelerator_record, cluster_record
from hardware.files import catalogue_hash, names, source_texts
from hardware.records import Accelerator, Cluster

__all__ = ["accelerator", "catalogue_hash", "cluster", "in_catalogue", "names", "source_texts"]


def accelerator(name_or_path: str | Path) -> Accelerator:
    """An accelerator of the catalogue, or from a file.

    Args:
        name_or_path: "h100-sxm", an alias such as "h100", or the path of a TOML or JSON file.

    Raises:
        UnknownName: no such name.
        BadFile: the file is missing or wrong.
    """
    if (path := files.as_path(name_or_path)) is not None:
        return files.load(path, accelerator_record)
    return _accelerator(files.canonical("accelerator", str(name_or_path)))


def cluster(name_or_path: str | Path) -> Cluster:
    """A cluster of the catalogue, or from a file (see the module's text for the format).

    Args:
        name_or_path: "dgx-h100", an alias, or the path of a TOML or JSON file.

    Raises:
        UnknownName: no such name.
        BadFile: the file is missing or wrong.
    """
    if (path := files.as_path(name_or_path)) is not None:
        return files.load(path, cluster_record, "cluster")
    return _cluster(files.canonical("cluster", str(name_or_path)))


def in_catalogue(machines: Cluster) -> bool:
    """Whether the catalogue has this cluster, as it is, under its name."""
    return machines.name in names("cluster") and _cluster(machines.name) == machines


@cache
def _accelerator(name: str) -> Accelerator:
    return files.load(files.file_of("accelerator", name), accelerator_record)


@cache
def _cluster(name: str) -> Cluster:
    return files.load(files.file_of("cluster", name), cluster_record)
