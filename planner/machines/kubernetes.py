"""``kubectl get nodes -o json``: kinds of nodes by their labels and capacity."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.answer.text import plural
from planner.machines.findings import Node, Reader

_PRODUCTS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
"""Labels that name the device."""
_DEVICES: Final = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuron", "habana.ai/gaudi")
"""Resources that count devices."""
_MACHINES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_SHARED: Final = re.compile(r"(-SHARED|-MIG-.*)$")
_UNITS: Final[Mapping[str, int]] = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1}
_BYTES: Final = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|)")


def _items(text: str) -> list[Mapping[str, Any]]:
    """The nodes of a list, or the one node that the text is; none where it is no JSON of such."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, Mapping):
        return []
    items = document.get("items", [document])
    if not isinstance(items, list):
        return []
    return [one for one in items if isinstance(one, Mapping) and one.get("kind", "Node") == "Node" and "status" in one]


def _nodes(text: str, name: str) -> list[Node]:
    """Kinds of nodes with devices, those that are named, counted and equipped alike together."""
    kinds: dict[tuple[str | None, int, str | None, int | None], int] = defaultdict(int)
    shared = False
    for item in _items(text):
        labels = _table(_table(item, "metadata"), "labels")
        capacity = _table(_table(item, "status"), "capacity")
        count = next((int(said) for key in _DEVICES if (said := str(capacity.get(key, ""))).isdecimal()), 0)
        product = next((str(labels[key]) for key in _PRODUCTS if key in labels), None)
        replicas = str(labels.get("nvidia.com/gpu.replicas", "1"))
        whole = str(labels.get("nvidia.com/gpu.count", ""))
        if product and (_SHARED.search(product) or (replicas.isdecimal() and int(replicas) > 1)):
            shared, product, count = True, _SHARED.sub("", product), int(whole) if whole.isdecimal() else count
        if count:
            machine = next((str(labels[key]) for key in _MACHINES if key in labels), None)
            kinds[product, count, machine, _bytes(str(capacity.get("memory", "")))] += 1
    return list(_kinds(kinds, f"{name}: kubectl get nodes", shared=shared))


def _kinds(
    kinds: Mapping[tuple[str | None, int, str | None, int | None], int], source: str, *, shared: bool
) -> Iterator[Node]:
    merged: dict[tuple[str | None, int, str | None], list[tuple[int | None, int]]] = defaultdict(list)
    for (product, count, machine, memory), nodes in kinds.items():
        merged[product, count, machine].append((memory, nodes))
    for (product, count, machine), parts in merged.items():
        node = Node()
        nodes = sum(number for _, number in parts)
        node.say("gpu", product, f"{source}, label gpu.product")
        node.say("gpus_per_node", count, f"{source}, capacity")
        node.say("nodes", nodes, f"{source}, {plural(nodes, 'node')} with that")
        node.say("machine", machine, f"{source}, label instance-type")
        node.say("host_memory", min((m for m, _ in parts if m), default=None), f"{source}, capacity")
        if shared:
            node.remarks.append(f"{source}: devices are shared or cut by MIG; whole devices are priced")
        yield node
    if not merged:
        yield Node(remarks=[f"{source}: no node has accelerators in its capacity"])


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _bytes(text: str) -> int | None:
    found = _BYTES.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


READERS: Final = (Reader("kubectl get nodes -o json", lambda text: bool(_items(text)), _nodes, counts=True),)
