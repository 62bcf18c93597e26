"""Low-rank adapters on frozen weights: what is asked for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from hardware.kernels import Record

Adapted = Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "experts"]
EVERYWHERE: tuple[Adapted, ...] = get_args(Adapted)
"""Megatron's names: into attention, out of it, into a dense network, out of it; and both products of routed experts."""
ADAPTED: tuple[Adapted, ...] = EVERYWHERE[:4]
"""Those that have adapters where none is named."""
OF_ATTENTION: tuple[Adapted, ...] = ADAPTED[:2]
WORDS: dict[str, tuple[Adapted, ...]] = {
    "all-linear": ADAPTED,
    "attention": OF_ATTENTION,
    **dict.fromkeys(("ffn", "mlp"), ADAPTED[2:]),
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "W_pack"), ADAPTED[:1]),
    **dict.fromkeys(("o_proj", "out_proj"), ADAPTED[1:2]),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "fc1"), ADAPTED[2:3]),
    **dict.fromkeys(("down_proj", "fc2"), ADAPTED[3:4]),
}
"""Modules by the names that models of Transformers give them; of queries, keys and values one stands for all [PEFT]."""
AdapterKernels = Literal["summed", "16-bit", "autocast", "32-bit"]
"""Kernels besides the two products: one sum; or PEFT's, each an operation, with adapters in 16 bits, in 32 that
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
            raise ValueError(f"no module after the colon of {text!r:.40}; {', '.join(ADAPTED)} can have adapters")
        said = [name.strip() for name in names.split(",") if name.strip()] or list(usual)
        modules = [module for name in said for module in WORDS.get(name, (name,))]
        try:
            number = int(rank)
        except ValueError:
            raise ValueError(f"expected a rank, such as 16 or 16:linear_qkv, got {text!r:.40}") from None
        if unknown := [name for name in modules if name not in EVERYWHERE]:
            raise ValueError(f"unknown module {unknown[0]!r:.40}; {', '.join(EVERYWHERE)} can have adapters")
        if not 1 <= number <= 8192:
            raise ValueError(f"rank {number} is out of range; 1 to 8192 works")
        named_in_order = tuple(name for name in EVERYWHERE if name in modules)
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
        raise ValueError(f"unknown kernels {how!r:.40}; {', '.join(ADAPTER_KERNELS)} work, with or without +dropout")
    return {"kernels": kernels, "dropout": bool(plus)}
