"""Single changes of a job: what to type, what they exclude."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from memplan.job.adapters import Lora
from memplan.job.parallel import ALONE, DataParallel, Parallel
from memplan.job.spec import JobSpec
from memplan.plan.recommend.records import NUMERICS, Group

LOSS_CHUNKS = 8
"""Parts of the tokens in a chunked loss: torchtune's default (torchtune/modules/loss/ce_chunked_output_loss.py)."""
LORA = Lora(rank=16, alpha=32.0)
"""peft's usual beginning; the rank hardly matters for memory."""
DEGREES = (2, 4, 8)
"""Ranks that share layers, sequences, experts, or a chain of stages: the first three stay inside a node."""
LONG = 16384
"""Tokens from which ranks may share a sequence: below, there are enough samples to give each rank its own."""
NODE_RANKS = 8
"""Ranks of a node."""
STAGES: tuple[DataParallel, ...] = ("zero1", "zero2", "zero3")
"""DeepSpeed's."""
PLAIN_OPTIMIZERS = (None, "adam", "adamw")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One thing to change about a job."""

    text: str
    """What to type."""
    group: Group
    """What else it excludes."""
    fields: tuple[tuple[str, Any], ...]
    """Fields of ``JobSpec`` and their values."""

    @property
    def numerics(self) -> bool:
        """Does it change what is computed?"""
        return self.group in NUMERICS

    def made(self, spec: JobSpec) -> JobSpec:
        """The job after it."""
        return replace(spec, **dict(self.fields))

    def made_parallel(self, parallel: Parallel) -> Parallel:
        """Return how the job is spread over ranks after the change."""
        found: Parallel = dict(self.fields).get("parallel", parallel)
        return found


def single_changes(spec: JobSpec, gpus: int, *, experts: bool = False) -> tuple[JobChange, ...]:
    """Every change worth trying for a job, the split of its batch aside."""
    train = spec.mode == "train"
    trained = (*_of_optimizer(spec), *_of_activations(spec), *_of_adapters(spec)) if train else ()
    changes = [*_of_precision(spec), *_of_ranks(spec, gpus, experts=experts), *trained]
    if spec.attention == "math":
        changes.append(_change("--attention auto", "attention", attention="auto"))
    return tuple(changes)


def _change(text: str, group: Group, **fields: Any) -> JobChange:
    return JobChange(text=text, group=group, fields=tuple(fields.items()))


def _of_activations(spec: JobSpec) -> Iterator[JobChange]:
    for word in ("full", "none"):
        if spec.checkpoint != word:
            yield _change(f"--checkpoint {word}", "checkpoint", checkpoint=word)
    if spec.loss_chunks == 1:
        yield _change(f"--loss-chunks {LOSS_CHUNKS}", "loss", loss_chunks=LOSS_CHUNKS)
    if not spec.offload_activations:
        yield _change("--offload-activations", "offload", offload_activations=True)


def _of_optimizer(spec: JobSpec) -> Iterator[JobChange]:
    if not spec.optimizer_in_backward and spec.grad_accum == 1 and spec.clip_grad_norm is None:
        yield _change("--optimizer-in-backward", "optimizer-step", optimizer_in_backward=True)
    if spec.optimizer in PLAIN_OPTIMIZERS:
        if spec.optimizer_impl in ("auto", "foreach"):
            yield _change("--optimizer-impl fused", "optimizer-step", optimizer_impl="fused")
        for name in ("adamw-8bit", "paged-adamw-8bit", "adafactor"):
            yield _change(f"--optimizer {name}", "optimizer", optimizer=name)


def _of_adapters(spec: JobSpec) -> Iterator[JobChange]:
    if spec.lora is None:
        yield _change(f"--lora {LORA}", "lora", lora=LORA)
        if spec.quantize == "none":
            text = f"--lora {LORA} --quantize nf4"
            yield _change(text, "quantize", lora=LORA, quantize="nf4")
    elif spec.quantize == "none":
        yield _change("--quantize nf4", "quantize", quantize="nf4")


def _of_precision(spec: JobSpec) -> Iterator[JobChange]:
    if spec.precision == "fp32":
        if spec.mode == "train":
            yield _change("--precision bf16-mixed", "precision", precision="bf16-mixed")
            yield _change("--precision fp16-mixed", "precision", precision="fp16-mixed")
        else:
            yield _change("--precision fp16", "precision", precision="fp16")
        yield _change("--precision bf16", "precision", precision="bf16")
    elif spec.precision == "bf16-mixed":
        yield _change("--precision bf16", "precision", precision="bf16")
        # Offered where the device emulates bfloat16.
        yield _change("--precision fp16-mixed", "precision", precision="fp16-mixed")


def _of_ranks(spec: JobSpec, gpus: int, *, experts: bool) -> Iterator[JobChange]:
    for parallel in layouts(gpus, seq_len=spec.seq_len or 0, experts=experts) if spec.mode == "train" else ():
        if parallel != spec.parallel:
            yield _change(f"--parallel {parallel}", "parallel", parallel=parallel)


def layouts(gpus: int, *, seq_len: int = 0, experts: bool = False) -> tuple[Parallel, ...]:
    """Ways to spread a job over ranks, plain data parallelism first.

    Args:
        gpus: Ranks.
        seq_len: Tokens per sample; 0 where nobody said.
        experts: Has the model a mixture of experts?
    """
    if gpus == 1:
        return (ALONE,)
    whole = Parallel(data="fsdp2", shards=gpus)
    found = [
        Parallel(data="ddp", replicas=gpus),
        whole,
        replace(whole, reshard=False),
        replace(whole, offload=True),
        *(_of_deepspeed(gpus) if zero_is_offered() else ()),
        *_within_nodes(whole),
        *(replace(whole, shards=gpus // count, context=count) for count in _context_degrees(gpus, seq_len)),
    ]
    if experts:
        found += [replace(whole, expert=count) for count in DEGREES if gpus % count == 0]
    return tuple(found)


def zero_is_offered() -> bool:
    """Is DeepSpeed there, with whose own code ZeRO is traced? An approximation is never recommended."""
    return find_spec("deepspeed") is not None


def _of_deepspeed(gpus: int) -> Iterator[Parallel]:
    for stage in STAGES:
        yield Parallel(data=stage, shards=gpus)
    for stage in STAGES[1:]:
        yield Parallel(data=stage, shards=gpus, offload=True)


def _within_nodes(whole: Parallel) -> Iterator[Parallel]:
    """One copy of the state in each node; layers shared within a node; stages that are nodes."""
    gpus = whole.shards
    nodes = gpus // NODE_RANKS if gpus % NODE_RANKS == 0 else 1
    if nodes > 1:
        yield replace(whole, shards=NODE_RANKS, replicas=nodes)
    for tensor in DEGREES:
        if gpus % tensor == 0 and gpus > tensor:
            yield replace(whole, shards=gpus // tensor, tensor=tensor)
    for stages in DEGREES:
        if nodes > 1 and nodes % stages == 0:
            yield replace(whole, shards=gpus // stages, pipeline=stages)
            if nodes > stages:
                yield replace(whole, shards=nodes // stages, tensor=NODE_RANKS, pipeline=stages)


def _context_degrees(gpus: int, seq_len: int) -> Iterator[int]:
    """Causal attention is balanced by giving each rank two parts of a sequence."""
    for count in DEGREES:
        if seq_len >= LONG and seq_len % (2 * count) == 0 and gpus % count == 0 and gpus > count:
            yield count
