"""What is trained on what: the fixed half of every cost question; strategies are the other half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from costmodels.arrays import Floats, Number
from costmodels.model.layer_kinds import Depth, depth_of
from costmodels.model.model import Model
from costmodels.model.towers import encoder
from costmodels.names import WORD
from costmodels.primitives.kernels import stream_seconds
from costmodels.stability import Stability
from costmodels.stack.finetune import BASE_BYTES, TASKS, Task
from costmodels.stack.precision import IN_TWO, RECIPES, Recipe
from costmodels.stack.stack import Stack
from hardware.errors import MeshwrightError
from hardware.kernels import AttentionFit, GemmFit
from hardware.records import NodeGroup, UnsupportedDtype

REDUCED = frozenset(name for name, recipe in RECIPES.items() if recipe.reduced)
"""Precisions in which only the layers' matrix products run reduced; attention and head stay in bf16."""
UNBOUND = 1.42
"""Time of the host's calls where a process may run on any processor, over that on those next to its device: seven of
Megatron-LM's functional tests on DGX H100, recorded twice with one image and taken to differ in that
(``benchmarks/host_binding.py``); assumed for all hosts."""


USUAL_IMAGE = 1024
"""Tokens of an image where nothing says how large images are: about a million pixels in patches of 14, four a token."""


class NoUnitsLeft(MeshwrightError):
    """A stack that sets aside as many compute units for communication as the device has, or more."""


@dataclass(frozen=True)
class Scenario:
    """A model, the machines, the software and the batch; sizes in tokens and sequences."""

    model: Model
    group: NodeGroup
    stack: Stack
    gpus: int
    seq_length: int
    global_batch_size: int
    precision: str
    stability: Stability | None = None
    """Where interruptions and checkpoints count in the price of an iteration."""
    framework: str = ""
    """The framework whose own rules hold besides the stack's, as the planner names it; it changes no price."""

    @cached_property
    def recipe(self) -> Recipe:
        """How the layers' products are multiplied."""
        apart = None if self.stack.kernels.fused_casts else IN_TWO.get(self.precision)
        return apart or RECIPES[self.precision]

    @cached_property
    def frozen(self) -> bool:
        """Whether weights stay as they are, and only adapters train."""
        return self.stack.switches.adapters is not None

    @cached_property
    def task(self) -> Task:
        """What is learnt from a sample."""
        return TASKS[self.stack.switches.task]

    @property
    def tuned(self) -> bool:
        """Whether a model is fine-tuned."""
        return self.stack.switches.task != "pretrain"

    @property
    def further_forwards(self) -> int:
        """Forward passes without gradients besides the one that trains: of a reference model, or for a divergence."""
        referenced = self.stack.switches.reference_model != "none"
        return self.task.policy_forwards + self.task.reference_forwards * referenced

    @property
    def trained_depth(self) -> float:
        """Share of the layers that train: a backward pass ends at the last one that does not."""
        return 1.0 - self.stack.switches.frozen_layers / self.model.num_layers

    @property
    def embedding_frozen(self) -> bool:
        """Whether the embedding has no gradient."""
        switches = self.stack.switches
        return self.frozen or switches.frozen_embeddings or switches.frozen_layers > 0

    @property
    def head_frozen(self) -> bool:
        """Whether the output head has no gradient of its own."""
        return self.frozen or (self.embedding_frozen and self.model.tied_embeddings)

    @property
    def base_bytes(self) -> float:
        """Bytes of a frozen weight where something is said of it; 0: as those of others."""
        said = self.stack.switches.base_precision
        return (BASE_BYTES[said] if said else self.stack.states.frozen_bytes) if self.frozen else 0.0

    @property
    def converts_weights(self) -> bool:
        """Whether frozen weights are stored in another format than products take, those of 8-bit recipes left out."""
        return self.base_bytes not in (0.0, self.word) and not self.recipe.reduced

    @property
    def keeps_casts(self) -> bool:
        """Whether frozen weights are cast from a wider format, which autograd keeps; narrower ones are unpacked."""
        return self.converts_weights and self.base_bytes > self.word

    @property
    def attended_length(self) -> int:
        """Tokens that attention spans: a packed document's, which count as equally long, or the sequence's."""
        return min(self.stack.switches.document_length or self.seq_length, self.seq_length)

    @cached_property
    def word(self) -> float:
        """Bytes of an activation, and of its gradient, outside the products that run in fewer bits."""
        return max(self.recipe.word, WORD)

    @property
    def saved_word(self) -> float:
        """Bytes of a product's input as it is kept for the backward pass: as it was multiplied, in general.

        torchao's 8-bit products keep it in 16 bits [TorchAO], and nothing of it where their casts are generated, which
        a backward pass fuses into what makes it again out of what is kept anyway [MinCut].
        """
        if not (self.recipe.reduced and self.stack.kernels.transposed_fp8_copies):
            return self.recipe.word
        return 0.0 if self.stack.switches.fused_elementwise else self.word

    @property
    def along_depth(self) -> bool:
        """Whether 8-bit products take both inputs along the depth only: a transposed copy for the weight gradient."""
        return self.stack.kernels.transposed_fp8_copies or not self.group.accelerator.architecture.startswith(
            "Blackwell"
        )

    @property
    def fused_experts(self) -> bool:
        """Whether experts run as one operation: Transformer Engine has it for these formats alone [TE]."""
        return self.stack.switches.fused_experts and self.recipe.fit in {"mxfp8", "nvfp4"}

    @property
    def attends_in_8_bits(self) -> bool:
        """Whether queries, keys and values are multiplied in 8 bits, as cuDNN alone does in training."""
        fit = self.rates.attention
        return (
            self.stack.switches.fp8_attention
            and self.precision in REDUCED
            and fit is not None
            and "fp8" in fit.in_8_bits
        )

    @property
    def keeps_attention(self) -> bool:
        """Whether per-operator recomputation keeps what the attention kernel returns."""
        return self.stack.recompute.saves_cudnn or self.rates.attention_name != "cudnn"

    @property
    def peak_rate(self) -> float:
        """Dense peak of one device in this precision, FLOP/s.

        Raises:
            UnsupportedDtype: it has no units for the precision; the message names those that can be asked for.
        """
        device = self.group.accelerator
        if not device.multiplies(self.recipe.arithmetic):
            known = ", ".join(name for name, recipe in RECIPES.items() if device.multiplies(recipe.arithmetic))
            raise UnsupportedDtype(f"{device.name} does not compute in {self.precision}; it supports {known}")
        return device.peak_rate(self.recipe.arithmetic)

    @property
    def tokens(self) -> float:
        """Tokens per iteration."""
        return float(self.seq_length) * self.global_batch_size * self.task.sequences

    @cached_property
    def of_any_size(self) -> Scenario:
        """The scenario without its GPUs and its batch, which strategies know: all but stragglers costs the same."""
        return replace(self, group=self.group.model_copy(update={"nodes": None}), gpus=1, global_batch_size=1)

    def with_sizes_of(self, variant: int) -> Scenario:
        """The scenario whose layers all have the sizes of the model's variant of that number."""
        if not variant:
            return self
        if variant not in self._varied:
            varied = replace(self, model=self.model.with_sizes_of(variant))
            varied.__dict__["rates"] = self.rates  # of machine and stack alone
            self._varied[variant] = varied
        return self._varied[variant]

    @cached_property
    def _varied(self) -> dict[int, Scenario]:
        return {}

    @cached_property
    def tower(self) -> Scenario | None:
        """The tower's layers as a model of their own, of as many tokens as an image has patches; None without images.

        Attention has no mask; what adapters and packing change is the decoder's.
        """
        tower, switches = self.model.tower, self.stack.switches
        if tower is None or not switches.images_per_sample:
            return None
        alone = {"switches.adapters": None, "switches.document_length": 0, "switches.images_per_sample": 0}
        patches = self.image_tokens * tower.patches_per_token
        return replace(self, model=encoder(tower), stack=self.stack.changed(alone), seq_length=patches, framework="")

    @property
    def image_tokens(self) -> int:
        """Tokens of the sequence that stand for an image: as is said, or as its tower makes of every image."""
        known = None if self.model.tower is None else self.model.tower.image_tokens
        return self.stack.switches.image_tokens or known or USUAL_IMAGE

    @property
    def tower_trains(self) -> bool:
        """Whether the vision tower has gradients."""
        return self.stack.switches.train_tower and not self.frozen

    @cached_property
    def depth(self) -> Depth:
        """The kinds of layer, first to last."""
        return depth_of(self.model, self.seq_length)

    @cached_property
    def rates(self) -> Rates:
        """Kernel speeds of this accelerator under this stack and precision."""
        return _rates(self)


@dataclass(frozen=True, slots=True)
class Rates:
    """The speeds that kernel formulas read: FLOP/s, bytes/s, fits."""

    matmul: GemmFit
    matmul_peak: float
    head: GemmFit
    head_peak: float
    vocabulary_peak: float
    """Of the output head's product, larger than any of a layer: none of the rate that the stack loses in layers."""
    vector: GemmFit
    """Of products that do not run on the matrix units."""
    vector_peak: float
    attention: AttentionFit | None
    attention_name: str
    attention_peak: float
    """Of fused attention, which keeps in training what its tables say (decision 015): no rate that products lose."""
    compute_units: float
    bandwidth: float
    stream: float
    norm_backward: float
    launch: float

    def stream_seconds(self, traffic: Number, share: float | None = None) -> Floats:
        """Seconds of a kernel that moves so many bytes through memory, at the stack's share of its bandwidth."""
        return stream_seconds(traffic=traffic, share=share or self.stream, bandwidth=self.bandwidth)


def _rates(scenario: Scenario) -> Rates:
    accelerator, stack = scenario.group.accelerator, scenario.stack
    kernels, peak = accelerator.kernels, scenario.peak_rate
    sixteen = "bf16" if scenario.precision in REDUCED else scenario.precision
    if sixteen == "bf16" and "bf16" not in accelerator.peak:
        sixteen = "fp16"
    name, attention = _attention(scenario)
    units = _units_left(scenario)
    longer = stack.calibrated.compute_time
    left = (1.0 - stack.overlap.communication_units / accelerator.compute_units) / longer
    share, memory = stack.calibrated.elementwise_efficiency / longer, kernels.memory_bound
    # Both rates are calibrated on matrix units, which products in fp32 do not run on.
    own, trained = (
        (1.0, 1.0) if scenario.precision == "fp32" else (stack.calibrated.kernel_efficiency, accelerator.training_rate)
    )
    clock = accelerator.clock(sixteen)
    matrix = left * own * trained * clock
    return Rates(
        matmul=_matmul_fit(scenario),
        matmul_peak=peak * scenario.recipe.rate * matrix,
        head=_matmul_fit(scenario) if sixteen == "fp32" else kernels.gemm_fit(sixteen),
        head_peak=accelerator.peak_rate(sixteen) * matrix,
        vocabulary_peak=accelerator.peak_rate(sixteen) * left * trained * clock,
        vector=_slower_fit(scenario) if "fp32" in accelerator.peak else kernels.gemm_fit(sixteen),
        vector_peak=accelerator.peak_rate("fp32" if "fp32" in accelerator.peak else sixteen)
        * (left * stack.calibrated.kernel_efficiency * accelerator.training_rate),
        attention=attention,
        attention_peak=accelerator.peak_rate(sixteen) * left * own * clock,
        attention_name=name,
        compute_units=float(units),
        bandwidth=accelerator.memory_bandwidth,
        stream=share * memory.fused,
        norm_backward=share * memory.backward,
        launch=stack.calibrated.host_time
        * stack.host.launch_time
        * accelerator.host
        * (1.0 if stack.switches.bind_processes else UNBOUND),
    )


def _units_left(scenario: Scenario) -> int:
    """The compute units that kernels run on, without those that only communicate.

    Raises:
        NoUnitsLeft: nothing would be computed, in a time without end.
    """
    units, aside = scenario.group.accelerator.compute_units, scenario.stack.overlap.communication_units
    if aside >= units:
        raise NoUnitsLeft(
            f"stack {scenario.stack.name} reserves {aside} compute units for communication, but "
            f"{scenario.group.accelerator.name} has only {units}; stack.overlap.communication_units {units - 1} or "
            "fewer works"
        )
    return units - aside


def _matmul_fit(scenario: Scenario) -> GemmFit:
    """The fit of this precision."""
    if scenario.precision == "fp32":
        return _slower_fit(scenario)
    return scenario.group.accelerator.kernels.gemm_fit(scenario.recipe.fit)


def _slower_fit(scenario: Scenario) -> GemmFit:
    """fp32 borrows the 16-bit fit, its losses shrunk by the ratio of the peaks.

    What is lost to filling the pipelines and to a partial last wave is a time, not a share: arithmetic that is
    several times slower loses that much less of its own rate to it.
    """
    accelerator = scenario.group.accelerator
    fit = accelerator.kernels.gemm_fit("fp32")
    ratio = accelerator.peak_rate("fp32") / accelerator.half_rate
    return fit.model_copy(update={"k_half": fit.k_half * ratio, "area_half": fit.area_half * ratio})


def _attention(scenario: Scenario) -> tuple[str, AttentionFit | None]:
    """The first kernel of the stack's preference that exists on this accelerator; unfused always does."""
    accelerator, stack = scenario.group.accelerator, scenario.stack
    known = accelerator.kernels.attention
    newest = stack.kernels.blackwell_attention if accelerator.architecture.startswith("Blackwell") else ()
    for name in newest or stack.switches.attention_backend:
        if name == "unfused":
            return name, None
        if name in known:
            later = f"{name}{RECENT}" if stack.kernels.recent_cudnn else name
            return name, known.get(later, known[name])
    return "unfused", None


RECENT = "-9.18"
"""What the fit of a kernel of January 2026 or later is called beyond the kernel."""
