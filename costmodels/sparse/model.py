"""Sparse models: embedding tables of up to trillions of parameters below a dense tower.

A model is a file; ``examples/ctr-dnn.toml`` is one. ::

    name = "my-ctr"
    batch_size = 1000                # examples of one CPU thread's step
    [[tables]]
    name = "slots"
    rows = "1M"
    width = 10                       # values of a row
    hotness = 26                     # rows that one example looks up
    skew = 1.05                      # Zipf exponent of the popularity of rows
    [[dense]]
    name = "fc1"
    inputs = 273
    outputs = 400

Optional: ``optimizer`` (``sgd``, ``adagrad``, ``adagrad-row``, ``adam``), ``example_bytes``, ``device_batch_size``
(examples of one accelerator's step), ``pass_examples`` (examples whose rows a node with accelerators fetches at once),
``geo_steps`` (steps between two exchanges of deltas), ``precision`` (``fp32``, ``tf32``, ``bf16``) of dense layers on
accelerators, and of a table ``count``, the number of tables like it.
"""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from hardware import files
from hardware.kernels import Label, Record
from hardware.units import ByteQuantity, Bytes, Count, CountQuantity, within

VALUE: Final = 4.0
"""Bytes of a value in a table, of its gradient, and of a dense parameter: single precision."""
KEY: Final = 8.0
"""Bytes of the key of a row, stored and sent with it."""
STATES: Final = {"sgd": 0.0, "adagrad": 1.0, "adagrad-row": 0.0, "adam": 2.0}
"""Values that an optimizer keeps for every value of a row."""
STATES_OF_ROW: Final = {"sgd": 0.0, "adagrad": 0.0, "adagrad-row": 1.0, "adam": 0.0}
"""Values that an optimizer keeps for a whole row."""

Size = Annotated[int, Field(strict=True, gt=0, le=2**20)]
Examples = Annotated[int, Field(strict=True, gt=0, le=10**9)]


class Table(Record):
    """An embedding table, or several alike."""

    name: Label
    rows: Annotated[CountQuantity, within("1", "1000T", "count")]
    width: Size
    """Values of a row."""
    hotness: Annotated[float, Field(strict=True, gt=0.0, le=1e6)] = 1.0
    """Rows of it that one example looks up."""
    skew: Annotated[float, Field(strict=True, ge=0.0, le=3.0)] = 0.0
    """Exponent s of the popularity of rows, p(i) ~ i^-s; 0: all alike."""
    count: Annotated[int, Field(strict=True, gt=0, le=10_000)] = 1
    """Tables like this one."""

    @field_validator("rows")
    @classmethod
    def _whole(cls, rows: Count) -> Count:
        if rows % 1.0:
            raise ValueError(f"expected a whole number, got {rows:g}")
        return rows

    @property
    def parameters(self) -> Count:
        """Values of all its tables."""
        return self.count * self.rows * self.width

    @property
    def wire_bytes(self) -> Bytes:
        """A row, or the gradient of one, as it travels: key and values."""
        return KEY + VALUE * self.width

    @property
    def pooled_bytes(self) -> Bytes:
        """What is left of one example's rows when they are added up."""
        return VALUE * self.width * self.count


class Dense(Record):
    """A dense layer."""

    name: Label
    inputs: Size
    outputs: Size

    @property
    def parameters(self) -> Count:
        """Weights and biases."""
        return float((self.inputs + 1) * self.outputs)

    @property
    def flops(self) -> Count:
        """Forward and backward passes of one example: three products of 2 inputs outputs."""
        return 6.0 * self.inputs * self.outputs


class SparseModel(Record):
    """Tables, the dense tower above them, and how they are trained."""

    name: Label
    title: Label = ""
    tables: tuple[Table, ...] = Field(min_length=1, max_length=128)
    dense: tuple[Dense, ...] = Field(min_length=1, max_length=64)
    optimizer: Literal["sgd", "adagrad", "adagrad-row", "adam"] = "adagrad-row"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Of products on accelerators (bf16 is fp16 on those older than bf16); CPUs multiply in fp32."""
    example_bytes: Annotated[ByteQuantity, within("1 B", "1 GB", "bytes")] = 1000.0
    """One example as it is stored."""
    batch_size: Examples = 1000
    """Examples of one CPU thread's step."""
    device_batch_size: Examples = 8192
    """Examples of one accelerator's step."""
    pass_examples: Examples = 4_000_000
    """Examples whose rows a node with accelerators fetches at once."""
    geo_steps: Annotated[int, Field(strict=True, gt=0, le=100_000)] = 100
    """Steps of a worker between two exchanges of deltas in geo mode."""

    @property
    def parameters(self) -> Count:
        """Of tables and dense layers."""
        return sum(table.parameters for table in self.tables) + sum(layer.parameters for layer in self.dense)

    def row_bytes(self, table: Table) -> Bytes:
        """A row as it is stored: key, values, states of the optimizer."""
        states = STATES[self.optimizer] * table.width + STATES_OF_ROW[self.optimizer]
        return KEY + VALUE * (table.width + states)

    def table_bytes(self, table: Table) -> Bytes:
        """All rows of all tables like it, as they are stored."""
        return table.count * table.rows * self.row_bytes(table)


def sparse_model(path: str | Path) -> SparseModel:
    """A sparse model from its TOML or JSON file.

    Raises:
        BadFile: the file is missing or wrong.
    """
    return files.load(files.expanded(path), SparseModel.model_validate)
