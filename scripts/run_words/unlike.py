"""How the machines that a measured run is priced on differ from the catalogue's that stand for them, as notes."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.records import Accelerator, NodeGroup


def of_the_network(group: NodeGroup, usual: NodeGroup, cluster: str, link: str | None) -> str:
    """The cluster whose network stands for the run's, and what the run's words say that differs from it.

    Args:
        group: what is priced.
        usual: the nodes of that cluster in the catalogue.
        cluster: its name.
        link: the link of the catalogue that the run's words on its network name.
    """
    carried, known = (nodes.tiers[-1].link.bandwidth / 1e9 if nodes.tiers else 0.0 for nodes in (group, usual))
    differs = [f"{carried:.3g} GB/s a device in place of {known:.3g}"] if carried != known else []
    differs += [link] if link else []
    return f"network of {cluster}{' with ' if differs else ''}{', '.join(differs)}, by the run's words"


def of_the_device(device: Accelerator, usual: Accelerator) -> Iterator[str]:
    """A note each where the run holds its devices to less power, or has other rates than they have elsewhere."""
    if device.name != usual.name:
        return
    if device.power_limit not in (None, usual.power_limit):
        yield f"{device.name} held to {device.power_limit:g} W, by the run's words"
    for name, peak in usual.peak.items():
        if name in device.peak and device.peak[name] != peak:
            yield f"{device.name} with {device.peak[name] / peak:.3g} of its peak in {name}, by the run's words"
