"""Low-rank adapters beside frozen weights: what is asked for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from hardware.kernels import Record

Adapted = Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
ADAPTED: tuple[Adapted, ...] = get_args(Adapted)
"""Megatron's names: into attention, out of it, into a dense network, out of it."""
OF_ATTENTION: tuple[Adapted, ...] = ADAPTED[:2]
AdapterKernels = Literal["summed", "16-bit", "autocast", "32-bit"]
"""Kernels beside an adapter's two products: one sum; or PEFT's, each an operation, with adapters in 16 bits, in 32 that
are cast to 16 for the products, or in 32 [PEFT]."""
ADAPTER_KERNELS: tuple[AdapterKernels, ...] = get_args(AdapterKernels)


class Adapters(Record):
    """Every product y = x W of the modules named becomes y = x W + (x A) B, of which A and B alone train [Hu21]."""

    rank: Annotated[int, Field(ge=1, le=8192)]
    """Columns of A and rows of B."""
    modules: Annotated[tuple[Adapted, ...], Field(min_length=1)] = ADAPTED
    kernels: AdapterKernels = "summed"
    """Those of "summed" serve a layer's queries, keys and values, or its two branches, together; PEFT's each alone."""
    dropout: bool = False
    """Some of an adapter's inputs are dropped, by a kernel of its own where ``kernels`` are PEFT's."""

    @model_validator(mode="before")
    @classmethod
    def _words(cls, given: object) -> object:
        """Words in a stack's file."""
        return dict(cls.read(str(given))) if isinstance(given, str | int) else given

    @classmethod
    def read(cls, text: str, usual: tuple[Adapted, ...] = ADAPTED) -> Self:
        """From words such as ``16`` or ``16:linear_qkv,linear_proj/autocast+dropout``.

        ``usual`` where no module is named; "summed", without dropout, where no kernels are.

        Raises:
            ValueError: in one sentence.
        """
        asked, slash, how = text.partition("/")
        rank, named, names = asked.partition(":")
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
        named_in_order = tuple(name for name in ADAPTED if name in modules)
        return cls(rank=number, modules=named_in_order, **(_kernels(how.strip()) if slash else {}))

    def __str__(self) -> str:
        plain = (self.kernels, self.dropout) == ("summed", False)
        how = "" if plain else f"/{self.kernels}{'+dropout' * self.dropout}"
        return f"{self.rank}:{','.join(self.modules)}{how}"


def says_kernels(text: str) -> bool:
    """Whether words for adapters say their kernels."""
    return "/" in text


def _kernels(how: str) -> dict[str, Any]:
    """The kernels that words such as ``autocast+dropout`` ask for."""
    kernels, plus, dropout = how.partition("+")
    if kernels not in ADAPTER_KERNELS or (plus and dropout != "dropout"):
        raise ValueError(f"no kernels {how!r:.40}; {', '.join(ADAPTER_KERNELS)} works, with +dropout or without")
    return {"kernels": kernels, "dropout": bool(plus)}
