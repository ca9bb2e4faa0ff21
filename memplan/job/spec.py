"""What is asked: the target and the options of one estimate, as plain data that travels between processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from annotated_types import Ge

from memplan.job.adapters import Lora, Quantize
from memplan.job.assumed import AssumedInteger
from memplan.job.option import Needed, option
from memplan.job.parallel import ALONE, Parallel
from memplan.job.zero import Zero

Precision = Literal["fp32", "fp16", "bf16", "fp16-mixed", "bf16-mixed"]
OptimizerName = Literal[
    "adamw", "adam", "sgd", "sgd-momentum", "adagrad", "adafactor", "lion", "adamw-8bit", "paged-adamw-8bit"
]
OptimizerImpl = Literal["auto", "foreach", "fused", "loop"]
Attention = Literal["auto", "flash", "efficient", "cudnn", "math"]
Mode = Literal["train", "inference", "generate"]
Loop = Literal["plain", "trainer"]
Compile = Literal["eager", "aot_eager", "inductor"]
COMPILERS: tuple[Compile, ...] = ("aot_eager", "inductor")
"""What compiles: backends of ``torch.compile``."""
BufferPlace = Literal["host", "device"]
Compression = Literal["none", "int8", "topk"]
Float8 = Literal["none", "tensorwise", "rowwise", "rowwise_with_gw_hp"]
DataDependent = Literal["balanced", "plausible", "worst"]
Halved = Literal["layers", "hidden", "experts"]
"""What of a model there is half of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """``model.py``, ``model.py:factory`` or ``model.py:Net(dim=512)``."""

    path: Path
    """The file, as typed."""
    factory: str | None = None
    """The name to call, or the call (``memplan.job.call``); without one ``model`` or the only candidate is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTarget:
    """``package.module:factory``."""

    module: str
    """Dotted import path."""
    factory: str
    """The name to call, or the call."""


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


FileKind = Literal["script", "target"]
"""What a Python file may be: a program that is run, or one that defines a model."""
FILE_KINDS: tuple[FileKind, ...] = get_args(FileKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTarget:
    """``train.py -- --lr 1e-3``: a program that trains, run as ``__main__``."""

    path: Path | None
    """Its file, as typed; None for a module."""
    module: str | None = None
    """Dotted import path of ``-m``."""
    arguments: tuple[str, ...] = ()
    """Its own, as typed behind ``--``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a launcher sets."""
    varied: Mapping[str, str] = field(default_factory=dict)
    """Field of ``JobSpec`` → the argument that decides it; what is not in it is looked up in the program's parser."""

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"-m {self.module}" if self.path is None else str(self.path)


Target = FileTarget | ModuleTarget | HubTarget | PresetTarget | ScriptTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """``--input NAME=dtype[dims]``: one keyword input of the model."""

    name: str
    """Keyword the model's ``forward`` takes."""
    dtype: str
    """torch dtype name, e.g. ``float32``."""
    dims: tuple[Annotated[int, Ge(0)] | Literal["B", "S"], ...]
    """Shape; ``B`` is the batch size, ``S`` the sequence length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job: everything that decides what step is traced. Torch-free and picklable."""

    target: Target
    """Where the model comes from."""
    allow_network: bool = option(
        False, panel="Target", help="Let hf: targets be downloaded.", on_job_line="never", for_programs=True
    )
    """May a ``hf:`` target be downloaded?"""
    trust_remote_code: bool = option(
        False, panel="Target", help="Let hf: targets run their own code.", on_job_line="never", for_programs=True
    )
    """May a ``hf:`` target run code from its directory?"""
    no_fold: bool = option(
        False, panel="Target", help="Trace every block, instead of continuing a few.", on_job_line="never",
        page="how-it-works.md#folded-traces",
    )  # fmt: skip
    """Trace all blocks of a model, even where a few of them show what the others do?"""
    batch_size: int = option(
        1, help="Samples per micro-batch.", least=1, on_job_line="always", by_hand="give it to the data loader"
    )
    """Samples per micro-batch."""
    seq_len: int | None = option(
        None, help="Tokens per sample.", default="the target's own", least=1, by_hand="cut the samples to this length"
    )
    """Tokens per sample, where the model has such a thing; None takes the target's own default."""
    inputs: tuple[InputSpec, ...] = option(
        (), called="input", metavar="SPEC", on_job_line="never", names_code=True,
        help="A model input, NAME=DTYPE[DIMS]; B is the batch size, S the sequence length. Repeatable.",
    )  # fmt: skip
    """Inputs given on the command line; they replace the target's ``batch``."""
    precision: Precision = option(
        "fp32",
        help="Number format:",
        on_job_line="always",
        default="fp32; for hf: and preset: as most train them",
        by_hand="cast the model, or run it under torch.autocast",
    )
    """``bf16``/``fp16`` cast the whole model; ``-mixed`` keeps fp32 weights under autocast, fp16 with a GradScaler."""
    optimizer: OptimizerName | None = option(
        None, help="Optimizer:", default="the target's own, else adamw", on_job_line="always", training_only=True,
        by_hand="make it in the training script",
    )  # fmt: skip
    """None takes the target's own ``optimizer``, else adamw."""
    loop: Loop = option(
        "plain", help="Who trains a model of transformers: a loop written by hand, or transformers' Trainer:",
        default="plain; for hf: and preset: trainer, where it can", training_only=True, page="targets.md#loop",
        by_hand="train with transformers.Trainer",
    )  # fmt: skip
    """Who trains ``hf:`` and ``preset:`` targets: memplan's plain loop, or transformers' Trainer."""
    loss: str | None = option(
        None, help="Loss: cross-entropy, mse, sum or module:function.", metavar="NAME", training_only=True,
        default="the target's own, else by what the model returns", names_code=True, page="targets.md#no-loss",
        by_hand="compute it in the training script",
    )  # fmt: skip
    """``cross-entropy``, ``mse``, ``sum`` or ``module:function``; None takes the target's own, else one that fits."""
    optimizer_impl: OptimizerImpl = option(
        "auto", help="Its implementation:", default="auto, as on CUDA", on_job_line="always", training_only=True,
        by_hand="make the optimizer with foreach= or fused=",
    )  # fmt: skip
    """``auto`` takes what torch would choose on CUDA."""
    grad_accum: int = option(
        1, help="Micro-batches per optimizer step.", least=1, on_job_line="always", training_only=True,
        by_hand="step the optimizer once in so many micro-batches",
    )  # fmt: skip
    """Micro-batches per optimizer step."""
    clip_grad_norm: float | None = option(
        None, help="Clip gradients to this norm.", metavar="NORM", default="off", above=0, training_only=True,
        by_hand="call clip_grad_norm_ before the optimizer steps",
    )  # fmt: skip
    """Maximum norm for ``clip_grad_norm_``; None does not clip."""
    attention: Attention = option(
        "auto", help="SDPA kernel:", default="auto, as on CUDA", on_job_line="always", for_programs=True,
        by_hand="choose the kernel with torch.nn.attention.sdpa_kernel",
    )  # fmt: skip
    """SDPA kernel; ``auto`` takes what CUDA would choose."""
    checkpoint: str = option(
        "none", help="Activation checkpointing: none, full or a plan file.", metavar="PLAN", page="checkpoint-plan.md",
        on_job_line="always", names_code=True, for_programs=True,
        by_hand="call memplan.apply(model, {value!r}) once the model is built",
    )  # fmt: skip
    """``none``, ``full`` (every repeated block) or the path of a plan file; beside what a program does itself."""
    parallel: Parallel = option(
        ALONE, metavar="SPEC", page="sharding.md", for_programs=True, by_hand="start {value.ranks} processes",
        help="Ranks, as fsdp=8,tp=2: ddp, fsdp, fsdp1, hsdp=RxS, zero1 to zero3, tp, cp, pp, ep; "
        "reshard, offload, schedule, micro.",
    )  # fmt: skip
    """Ranks; the batch size is one rank's."""
    zero: Zero | None = None
    """DeepSpeed's settings, where ``parallel.data`` is one of its stages; None: its defaults."""
    lora: Lora | None = option(
        None, metavar="SPEC", page="adapters.md#--lora", names_code=True, by_hand="give the model adapters with peft",
        help="Train low-rank adapters, as r=16,alpha=32; targets=q_proj+v_proj, dropout=0.1, dora=yes; or "
        "peft's adapter_config.json.",
    )  # fmt: skip
    """Train low-rank adapters instead of the weights."""
    quantize: Quantize = option(
        "none", help="Frozen weights of linear layers:", page="adapters.md#--quantize",
        by_hand="quantise the weights where the model is loaded",
    )  # fmt: skip
    """How frozen weights of linear layers are held."""
    float8: Float8 = option(
        "none", help="Multiply linear layers in float8, by a recipe of torchao:", page="adapters.md#float8",
        by_hand="call torchao.float8.convert_to_float8_training on the model, with this recipe",
    )  # fmt: skip
    """Recipe of torchao by which linear layers multiply in float8."""
    loss_chunks: int = option(
        1, help="Make a language model's logits in so many parts.", least=1, training_only=True,
        page="adapters.md#other-savings", by_hand="make the logits in so many parts, as chunk_loss of --to torch does",
    )  # fmt: skip
    """Parts of the tokens whose logits are made one after another; 1 makes all at once."""
    keep_gradients: bool = option(
        False, help="Zero gradients in place, as zero_grad(set_to_none=False) does, instead of freeing them.",
        training_only=True, by_hand="call optimizer.zero_grad(set_to_none=False)",
    )  # fmt: skip
    """Clear gradients with ``zero_grad(set_to_none=False)``, so that they stay through the next forward."""
    optimizer_in_backward: bool = option(
        False, help="Update each weight in backward and free its gradient at once.", training_only=True,
        page="adapters.md#other-savings", by_hand="step a parameter in register_post_accumulate_grad_hook",
    )  # fmt: skip
    """Update each parameter as soon as its gradient is there, and free that."""
    offload_activations: bool = option(
        False, help="Keep what autograd saves in pinned host memory.", training_only=True,
        page="adapters.md#other-savings", by_hand="run forward under torch.autograd.graph.save_on_cpu",
    )  # fmt: skip
    """Keep what autograd saves in host memory."""
    compress_activations: Compression = option(
        "none", help="What autograd saves, as a what-if:", page="adapters.md#other-savings", training_only=True,
        by_hand="pack what autograd saves in torch.autograd.graph.saved_tensors_hooks",
    )  # fmt: skip
    """In what form what autograd saves is held."""
    data_workers: int | None = option(
        None, help="Count the DataLoader's host memory, with so many workers.", default="not counted", least=0,
        page="host-memory.md", by_hand="give it to the data loader as num_workers",
    )  # fmt: skip
    """Processes of the ``DataLoader``, 0 for none; None leaves its memory out, unless one of the next two is given."""
    prefetch: int | None = option(
        None, help="Batches ahead for each worker.", default="2", least=1,
        # As DataLoader itself complains.
        needs=Needed(field="data_workers", reason="is for the workers of a DataLoader"),
        by_hand="give it to the data loader as prefetch_factor",
    )  # fmt: skip
    """Batches on their way for each of them; None takes torch's default."""
    pin_memory: bool = option(False, help="The DataLoader pins its batches.", by_hand="give it to the data loader")
    """Does the loader copy batches into page-locked memory?"""
    replay_buffer: int = option(
        0, help="Samples that stay in memory to be drawn from.", least=0, page="host-memory.md#replay-buffers",
        by_hand="keep so many samples in the training script",
    )  # fmt: skip
    """Samples that the job keeps in memory and draws its batches from."""
    replay_buffer_on: BufferPlace = option(
        "host", help="Where they stay:", on_job_line="always", by_hand="keep them there in the training script"
    )
    """Where they are."""
    compile: Compile = option(
        "eager", for_programs=True, on_job_line="always", page="compile.md", by_hand="call model.compile()",
        help="How what torch.compile compiles, else the whole model, runs: as written, or as a backend compiles it:",
    )  # fmt: skip
    """What ``torch.compile`` compiles, else the whole model, runs as written or as a backend compiles it."""
    mode: Mode = option("train", help="What one step is:", on_job_line="always")
    """What one step is."""
    max_new_tokens: int = option(32, help="Tokens decoded by generate.", least=1, on_job_line="never")
    """Tokens decoded in ``generate`` mode."""
    kv_block_size: int | None = option(
        None, help="What generate's cache takes in blocks of so many tokens.", default="no blocks", least=1,
        needs=Needed(field="mode", value="generate", reason="is for a cache"), page="usage.md#generation",
        on_job_line="never",
    )  # fmt: skip
    """Tokens per block of a paged cache, for a what-if in ``generate`` mode."""
    data_dependent: DataDependent = option(
        "balanced", help="Sizes that depend on values:", on_job_line="always", for_programs=True,
        page="usage.md#routing",
    )  # fmt: skip
    """Assumption for sizes that depend on values: how routers choose experts (``tracing.routing``), and at worst, too,
    that boolean masks take every element."""
    assume: tuple[AssumedInteger, ...] = option(
        (), metavar="SPEC", on_job_line="never", names_code=True, for_programs=True, page="programs.md#integers",
        help="An integer that the program reads from a tensor, item@FILE:LINE=NUMBER. Repeatable.",
    )  # fmt: skip
    """Integers that the user knows of what is read from tensors."""
    halved: Halved | None = None
    """For advice: half of the layers, the width or the experts of a model that a configuration describes."""
    few_micro_batches: bool = False
    """For searches: run a few micro-batches of an accumulation where they show what the others do."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Field name → where its value came from (``--batch-size``, ``model.py:14``, ``default``)."""
