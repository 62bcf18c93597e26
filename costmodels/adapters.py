"""Low-rank adapters beside frozen weights: what is asked for."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from hardware.kernels import Record

Adapted = Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
ADAPTED: tuple[Adapted, ...] = get_args(Adapted)
"""Megatron's names: into attention, out of it, into a dense network, out of it."""
OF_ATTENTION: tuple[Adapted, ...] = ADAPTED[:2]


class Adapters(Record):
    """Every product y = x W of the modules named becomes y = x W + (x A) B, of which A and B alone train [Hu21]."""

    rank: Annotated[int, Field(ge=1, le=8192)]
    """Columns of A and rows of B."""
    modules: Annotated[tuple[Adapted, ...], Field(min_length=1)] = ADAPTED

    @model_validator(mode="before")
    @classmethod
    def _words(cls, given: object) -> object:
        """Words in a stack's file."""
        return dict(cls.read(str(given))) if isinstance(given, str | int) else given

    @classmethod
    def read(cls, text: str, usual: tuple[Adapted, ...] = ADAPTED) -> Self:
        """From words such as ``16`` or ``16:linear_qkv,linear_proj``; ``usual`` where no module is named.

        Raises:
            ValueError: in one sentence.
        """
        rank, named, names = text.partition(":")
        if named and not names.strip(" ,"):
            raise ValueError(f"no module behind the colon of {text!r:.40}; {', '.join(ADAPTED)} have adapters")
        modules = [name.strip() for name in names.split(",") if name.strip()] or list(usual)
        try:
            number = int(rank)
        except ValueError:
            raise ValueError(f"expected a rank, such as 16 or 16:linear_qkv, got {text!r:.40}") from None
        if unknown := [name for name in modules if name not in ADAPTED]:
            raise ValueError(f"no module {unknown[0]!r:.40}; {', '.join(ADAPTED)} have adapters")
        if not 1 <= number <= 8192:
            raise ValueError(f"rank {number}; 1 to 8192 works")
        return cls(rank=number, modules=tuple(name for name in ADAPTED if name in modules))

    def __str__(self) -> str:
        return f"{self.rank}:{','.join(self.modules)}"
