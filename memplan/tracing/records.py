"""What a trace is: ops in eager order, storages, and the stream of their births and deaths. Torch-free data.

Time has two scales. An *op index* counts ops; an *event index* counts allocations and frees, several of which may fall
inside one op (a kernel's scratch) or between two (Python drops a variable). Lifespans in op indices serve planners, the
event stream serves exact replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from memplan.tracing.call_graph import CallGraph
from memplan.units import Bytes, OpIndex, StorageId

if TYPE_CHECKING:
    import torch

    from memplan.hardware.profile import GpuProfile

Phase = Literal["setup", "forward", "backward", "optimizer"]
Place = Literal["device", "host", "pinned", "meta"]
"""``pinned`` is page-locked host memory from torch's allocator; what is on ``meta`` has no memory at all."""
Role = Literal["parameter", "buffer", "input", "gradient", "optimizer_state", "workspace", "scratch", "intermediate"]
Computing = Literal["fp32", "fp16", "bf16"]
"""In what products are computed, as options call it."""
Way = Literal["likely", "heard", "early", "other", "most", "idle", "later"]
"""How what nobody knows turns out. A prediction is of the likely way, or of a small job as a real run heard it of the
data (``rehearsal``); the others are for the ends of its interval: what may end early does; what may go one way or the
other goes the other, and nothing is selected; loops are long, and what is asked in them again and again goes both ways
in turn; optimizers whose scaler finds overflow in every step stay idle, which is replayed without another trace; a
program goes on to what follows its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlace:
    """Where a program has its model."""

    expression: str
    """How its code calls it there: ``model``, ``trainer.model``; empty where no variable of its own holds it."""
    line: str
    """``train.py:57``: the end of the statement after which it is there; empty where nobody knows."""


_STEPS = {(9, 0): "a", (9, 4): "2"}
"""Numbers of an AMD card → the last sign of its architecture: MI200s are gfx90a, MI300s gfx942; others end in 0 (LLVM,
docs/AMDGPUUsage.rst, "Processors")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTraits:
    """What of a device changes the traced step itself (not merely whether it fits)."""

    kind: Literal["cuda", "cpu"]
    """``cpu`` traces CPU semantics as they are."""
    capability: tuple[int, int] = (8, 0)
    """Compute capability; decides attention kernels, which on AMD's cards are taken to be those of an A100."""
    rocm: tuple[int, int] | None = None
    """What torch calls the compute capability of an AMD card, and programs are told; None on others."""
    sm_count: int = 108
    """Multiprocessors; decides the split of reductions."""
    threads_per_sm: int = 2048
    """Resident threads per multiprocessor."""
    cublas_workspace_bytes: int = 8_519_680
    """One cuBLAS workspace."""
    total_bytes: int = 80 * 2**30
    """Its memory, for libraries that go by it; the same for all GPUs where none does, so that they share a trace."""

    lacks: tuple[str, ...] = ()
    """Dtypes that its cores cannot multiply (``GpuProfile.lacks``)."""

    @property
    def told(self) -> tuple[int, int]:
        """What torch calls its compute capability."""
        return self.rocm or self.capability

    @property
    def architecture(self) -> str:
        """``gfx942``, of an AMD card: its numbers, and the letter or digit of the step that has matrix cores."""
        major, minor = self.told
        return f"gfx{major}{minor}{_STEPS.get(self.told, 0)}" if self.rocm else ""

    @classmethod
    def of(cls, profile: "GpuProfile") -> "DeviceTraits":
        """The traits of a hardware profile."""
        if profile.kind == "cpu":
            return cls(kind="cpu", cublas_workspace_bytes=0)
        told = profile.compute_capability
        return cls(
            kind="cuda",
            capability=told if told and profile.kind == "cuda" else (8, 0),
            rocm=told or (9, 4) if profile.kind == "rocm" else None,
            sm_count=profile.sm_count,
            threads_per_sm=profile.threads_per_sm,
            cublas_workspace_bytes=profile.cublas_workspace_bytes,
            lacks=profile.lacks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One dispatched aten op."""

    index: OpIndex
    """Position in the trace."""
    name: str
    """``aten.mm.default``."""
    phase: Phase
    """Forward, backward or optimizer (setup for model building and data)."""
    module: str
    """Path of the module whose forward it belongs to, also for its backward; empty outside modules."""
    source: str
    """``file.py:line`` of the user's innermost frame; empty if unknown."""
    flops: int
    """Multiply-adds counted as two, by torch's own registry; 0 for ops that it does not count."""
    bytes_moved: Bytes
    """Bytes of tensor arguments plus results: a lower bound on memory traffic."""
    reads: tuple[StorageId, ...]
    """Storages of its tensor arguments."""
    writes: tuple[StorageId, ...]
    """Storages of its results (new, or mutated arguments)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """One allocation. Every view and every in-place result shares it."""

    id: StorageId
    """Position in ``Trace.storages``."""
    nbytes: Bytes
    """Requested size."""
    place: Place
    """Only what lies on the device counts as its memory: not an optimizer's ``step``, nor ``torch.arange(n)``."""
    role: Role
    """What it is, as far as its maker knows; activations and temporaries are told apart by ``memplan.lifetime``."""
    birth: OpIndex
    """Op during which it was allocated."""
    name: str
    """Qualified parameter, buffer or input name; empty for results of ops."""
    stream: int = 0
    """CUDA stream it was allocated on; 0 is the default stream."""
    most_bytes: Bytes | None = None
    """What it may take at most, where only a closed library knows its size; ``nbytes`` is then the likely size, and 0
    the least."""
    spare: bool = False
    """Does its library do with less, down to nothing, where memory is short?"""
    pending: int = 0
    """Events of the trace that come between its free and the moment at which the host has waited for all streams that
    use it (``record_stream``): so long the allocator may hold it back. 0 where no other stream uses it."""


class Event(NamedTuple):
    """One allocation or free, in the order in which eager PyTorch makes them."""

    action: Literal["alloc", "free"]
    """What happens."""
    storage: StorageId
    """To which storage."""
    op: OpIndex
    """During this op, or after it and before the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """The part of a trace that is one optimizer step; half-open in both scales."""

    first_op: int
    end_op: int
    first_event: int
    end_event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stretch of a step that stands for more that are like it: keys and values passed on around a ring of ranks.

    The stretch before it, from ``former_op`` and ``former_event`` on, was traced too, and shows that one is like the
    other (``memplan.tracing.turns``).
    """

    former_op: int
    former_event: int
    first_op: int
    end_op: int
    first_event: int
    end_event: int
    further: int
    """How many more follow it that were not traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Counts of the traced model."""

    parameters: int
    """Elements of all parameters, shared ones once; packed ones (4 bits each) as the numbers that they stand for."""
    trainable_parameters: int
    """Those that require a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayer:
    """What one layer caches of keys and values at the end of a generation."""

    sequences: int
    """In the batch."""
    tokens: int
    """Of each sequence that the layer has seen."""
    window: int | None
    """How many of them its attention looks back on; None for all."""
    token_bytes: Bytes
    """Of one token of one sequence: keys, values, and what else the layer keeps for each."""
    nbytes: Bytes
    """Of its tensors as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """That a deep model's trace was made of those of shallower ones, or why it was not."""

    blocks: int
    """Of the model."""
    traced: tuple[int, ...]
    """Blocks of the models that were traced instead; the last one shows that the others continue."""
    refused: str = ""
    """Why the whole model was traced all the same; empty where it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded run of a few steps: everything that later stages know of the model."""

    device: DeviceTraits
    """What it was traced for."""
    model: ModelFacts
    """Parameter counts."""
    ops: tuple[Op, ...]
    """All ops, all steps."""
    storages: tuple[Storage, ...]
    """All allocations, indexed by id."""
    events: tuple[Event, ...]
    """Births and deaths in order. What is never freed lives on after the trace."""
    steps: tuple[StepRange, ...]
    """Traced optimizer steps (inference: forward passes); what precedes the first is set-up."""
    repeats: bool
    """Does the last step leave the state that it began with? Then every later step is the same."""
    seq_len: int | None
    """Tokens per sample that the batches were made with; None where the target has no such thing."""
    provenance: Mapping[str, str]
    """Where the target's parts came from: ``model``, ``batch``, ``loss``… → ``file:line``."""
    assumptions: tuple[str, ...]
    """What was assumed on the way, each a sentence for the report."""
    not_modelled: tuple[str, ...]
    """What the figures leave out, each a phrase for the report."""
    trace_seconds: float
    """Wall time of building and running the steps."""
    graph: CallGraph["Op"] | None
    """The calls in execution order; ``fx()`` makes an fx graph of them."""
    constants: "Mapping[str, torch.Tensor]"
    """Tensors that the graph's ``get_attr`` nodes name."""
    nvme_bytes: int = 0
    """In files on this rank's disk: what was offloaded to NVMe."""
    batch: tuple[Bytes, ...] = ()
    """Each tensor of one batch as ``batch()`` returns it, before anything is cast: what a data loader hands over."""
    optimizers: tuple[str, ...] = ()
    """Classes of the optimizers that step, as far as they are torch's or made like torch's; an empty name is the one
    that memplan made of the options."""
    unsure: tuple[Way, ...] = ()
    """In which other ways what nobody knows of the data could turn out, so that the step would be another one."""
    causal: frozenset[OpIndex] = frozenset()
    """Attention ops that were told to be causal: their kernels leave out half of the work that torch counts."""
    computes_in: Computing = "fp32"
    """The type in which most of its arithmetic is done; for programs, whose options do not say."""
    cache: tuple[CacheLayer, ...] = ()
    """Keys and values after the last forward of a generation by transformers."""
    folded: Folded | None = None
    """Whether shallower models were traced in its place; None where none was tried."""
    alloc_conf: str = ""
    """``PYTORCH_CUDA_ALLOC_CONF`` as the target sets it, or as a program finds it; empty where there is none."""
    turns: tuple[Turn, ...] = ()
    """Stretches that stand for more, in order; none where all that runs was traced."""
