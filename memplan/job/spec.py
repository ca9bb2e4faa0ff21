"""What is asked: the target and the options of one estimate, as plain data that travels between processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memplan.job.adapters import Lora, Quantize
from memplan.job.parallel import ALONE, Parallel
from memplan.job.zero import Zero

Precision = Literal["fp32", "fp16", "bf16", "fp16-mixed", "bf16-mixed"]
OptimizerName = Literal[
    "adamw", "adam", "sgd", "sgd-momentum", "adagrad", "adafactor", "lion", "adamw-8bit", "paged-adamw-8bit"
]
OptimizerImpl = Literal["auto", "foreach", "fused", "loop"]
Attention = Literal["auto", "flash", "efficient", "cudnn", "math"]
Mode = Literal["train", "inference", "generate"]
Compile = Literal["eager", "inductor"]
BufferPlace = Literal["host", "device"]
Compression = Literal["none", "int8", "topk"]
Float8 = Literal["none", "tensorwise", "rowwise", "rowwise_with_gw_hp"]
DataDependent = Literal["balanced", "worst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """``model.py`` or ``model.py:factory``."""

    path: Path
    """The file, as typed."""
    factory: str | None = None
    """The name to call; without one ``model`` or the only candidate is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTarget:
    """``package.module:factory``."""

    module: str
    """Dotted import path."""
    factory: str
    """The name to call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTarget:
    """``hf:DIR`` or ``hf:config.json``: a transformers configuration on this disk; ``hf:org/name``: on the hub."""

    location: str
    """Directory, file, or hub name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetTarget:
    """``preset:NAME``: a well-known architecture (``memplan presets``)."""

    name: str
    """Name in the preset catalog."""


Target = FileTarget | ModuleTarget | HubTarget | PresetTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """``--input NAME=dtype[dims]``: one keyword input of the model."""

    name: str
    """Keyword the model's ``forward`` takes."""
    dtype: str
    """torch dtype name, e.g. ``float32``."""
    dims: tuple[int | Literal["B", "S"], ...]
    """Shape; ``B`` is the batch size, ``S`` the sequence length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job: everything that decides what step is traced. Torch-free and picklable."""

    target: Target
    """Where the model comes from."""
    batch_size: int = 1
    """Samples per micro-batch."""
    seq_len: int | None = None
    """Tokens per sample, where the model has such a thing; None takes the target's own default."""
    precision: Precision = "fp32"
    """``bf16``/``fp16`` cast the whole model; ``-mixed`` keeps fp32 weights under autocast, fp16 with a GradScaler."""
    optimizer: OptimizerName | None = None
    """None takes the target's own ``optimizer``, else adamw."""
    optimizer_impl: OptimizerImpl = "auto"
    """``auto`` takes what torch would choose on CUDA."""
    grad_accum: int = 1
    """Micro-batches per optimizer step."""
    clip_grad_norm: float | None = None
    """Maximum norm for ``clip_grad_norm_``; None does not clip."""
    attention: Attention = "auto"
    """SDPA kernel; ``auto`` takes what CUDA would choose."""
    checkpoint: str = "none"
    """``none``, ``full`` (every repeated block) or the path of a plan file."""
    compile: Compile = "eager"
    """What ``torch.compile`` compiles, else the whole model, runs as written or as Inductor compiles it."""
    mode: Mode = "train"
    """What one step is."""
    parallel: Parallel = ALONE
    """Ranks; the batch size is one rank's."""
    zero: Zero | None = None
    """DeepSpeed's settings, where ``parallel.data`` is one of its stages; None: its defaults."""
    lora: Lora | None = None
    """Train low-rank adapters instead of the weights."""
    quantize: Quantize = "none"
    """How frozen weights of linear layers are held."""
    float8: Float8 = "none"
    """Recipe of torchao by which linear layers multiply in float8."""
    loss_chunks: int = 1
    """Parts of the tokens whose logits are made one after another; 1 makes all at once."""
    optimizer_in_backward: bool = False
    """Update each parameter as soon as its gradient is there, and free that."""
    offload_activations: bool = False
    """Keep what autograd saves in host memory."""
    compress_activations: Compression = "none"
    """In what form what autograd saves is held."""
    data_workers: int | None = None
    """Processes of the ``DataLoader``, 0 for none; None leaves its memory out, unless one of the next two is given."""
    prefetch: int | None = None
    """Batches on their way for each of them; None takes torch's default."""
    pin_memory: bool = False
    """Does the loader copy batches into page-locked memory?"""
    replay_buffer: int = 0
    """Samples that the job keeps in memory and draws its batches from."""
    replay_buffer_on: BufferPlace = "host"
    """Where they are."""
    inputs: tuple[InputSpec, ...] = ()
    """Inputs given on the command line; they replace the target's ``batch``."""
    data_dependent: DataDependent = "balanced"
    """Assumption for sizes that depend on values (MoE routing, boolean masks)."""
    allow_network: bool = False
    """May a ``hf:`` target be downloaded?"""
    trust_remote_code: bool = False
    """May a ``hf:`` target run code from its directory?"""
    max_new_tokens: int = 32
    """Tokens decoded in ``generate`` mode."""
    kv_block_size: int | None = None
    """Tokens per block of a paged cache, for a what-if in ``generate`` mode."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Field name → where its value came from (``--batch-size``, ``model.py:14``, ``default``)."""
