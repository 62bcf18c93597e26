"""What the software of a parameter server costs: constants with their sources."""

from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from hardware import files
from hardware.kernels import Overhead, Record, Share
from hardware.links import LinkBandwidth
from hardware.units import ByteQuantity

_HOME: Final = Path(__file__).parent / "runtimes"
_Part = Annotated[float, Field(gt=0.0, lt=1.0)]


class Runtime(Record):
    """Constants of a parameter server's software; every one names its source."""

    gemm_share: Share
    """Share of a core's peak that dense layers reach."""
    row_seconds: Overhead
    """One core: to find, pool or update one row, on either side."""
    message_seconds: Overhead
    """One core: to make, or to answer, one request to one server."""
    parse_bandwidth: LinkBandwidth
    """Bytes of examples that one core reads and parses, bytes/s."""
    random_share: Share
    """Share of the host memory's bandwidth that single rows reach."""
    device_random_share: Share
    """Share of an accelerator's memory bandwidth that single rows reach."""
    memory_share: _Part
    """Share of memory and drives that tables may fill."""
    working_share: _Part
    """Share of an accelerator's memory for the rows of the current pass; the rest may hold tables for good."""
    async_merge: Annotated[int, Field(strict=True, ge=1, le=1000)]
    """Gradients of dense layers that a node adds up before it sends them, in async mode."""
    variation: Annotated[float, Field(ge=0.0, le=1.0)]
    """Standard deviation of a node's step over its mean."""
    block: ByteQuantity
    """Bytes that a drive reads or writes at once."""
    sources: dict[str, str]


@cache
def runtime(name: str = "paddle") -> Runtime:
    """The constants of a parameter server's software, from ``costmodels/sparse/runtimes``."""
    return Runtime.model_validate(files.read(_HOME / f"{name}.toml"))
