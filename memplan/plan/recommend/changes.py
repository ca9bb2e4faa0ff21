"""Single changes of a job: what to type, what they save, what they exclude."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from memplan.job.adapters import Lora
from memplan.job.parallel import ALONE, Parallel
from memplan.job.spec import JobSpec
from memplan.plan.recommend.records import NUMERICS, Group, Kind

LOSS_CHUNKS = 8
"""Parts of the tokens in a chunked loss: torchtune's default (torchtune/modules/loss/ce_chunked_output_loss.py)."""
LORA = Lora(rank=16, alpha=32.0)
"""peft's usual beginning; the rank hardly matters for memory."""
TENSOR_DEGREES = (2, 4, 8)
"""Tensor parallelism stays inside a node."""
NODE_RANKS = 8
"""Ranks of one copy of the state in hybrid sharding: a node's."""
PLAIN_OPTIMIZERS = (None, "adam", "adamw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing to change about a job."""

    text: str
    """What to type."""
    group: Group
    """What else it excludes."""
    kind: Kind
    """What it saves."""
    fields: tuple[tuple[str, Any], ...]
    """Fields of ``JobSpec`` and their values."""

    @property
    def numerics(self) -> bool:
        """Does it change what is computed?"""
        return self.group in NUMERICS

    def made(self, spec: JobSpec) -> JobSpec:
        """The job after it."""
        return replace(spec, **dict(self.fields))


def single_changes(spec: JobSpec, gpus: int) -> tuple[Change, ...]:
    """Every change worth trying for a job, the split of its batch aside."""
    train = spec.mode == "train"
    trained = (*_of_optimizer(spec), *_of_activations(spec), *_of_adapters(spec)) if train else ()
    changes = [*trained, *_of_ranks(spec, gpus), *_of_precision(spec)]
    if spec.attention == "math":
        changes.append(_change("--attention auto", "attention", "activation", attention="auto"))
    return tuple(changes)


def _change(text: str, group: Group, kind: Kind, **fields: Any) -> Change:
    return Change(text=text, group=group, kind=kind, fields=tuple(fields.items()))


def _of_activations(spec: JobSpec) -> Iterator[Change]:
    if spec.checkpoint == "none":
        yield _change("--checkpoint full", "checkpoint", "activation", checkpoint="full")
    if spec.loss_chunks == 1:
        yield _change(f"--loss-chunks {LOSS_CHUNKS}", "loss", "activation", loss_chunks=LOSS_CHUNKS)
    if not spec.offload_activations:
        yield _change("--offload-activations", "offload", "activation", offload_activations=True)


def _of_optimizer(spec: JobSpec) -> Iterator[Change]:
    if not spec.optimizer_in_backward and spec.grad_accum == 1 and spec.clip_grad_norm is None:
        yield _change("--optimizer-in-backward", "optimizer-step", "state", optimizer_in_backward=True)
    if spec.optimizer in PLAIN_OPTIMIZERS:
        if spec.optimizer_impl in ("auto", "foreach"):
            yield _change("--optimizer-impl fused", "optimizer-step", "state", optimizer_impl="fused")
        for name in ("adamw-8bit", "paged-adamw-8bit", "adafactor"):
            yield _change(f"--optimizer {name}", "optimizer", "state", optimizer=name)


def _of_adapters(spec: JobSpec) -> Iterator[Change]:
    if spec.lora is None:
        yield _change(f"--lora {LORA}", "lora", "state", lora=LORA)
        if spec.quantize == "none":
            text = f"--lora {LORA} --quantize nf4"
            yield _change(text, "quantize", "state", lora=LORA, quantize="nf4")
    elif spec.quantize == "none":
        yield _change("--quantize nf4", "quantize", "state", quantize="nf4")


def _of_precision(spec: JobSpec) -> Iterator[Change]:
    if spec.precision == "fp32":
        if spec.mode == "train":
            yield _change("--precision bf16-mixed", "precision", "activation", precision="bf16-mixed")
        yield _change("--precision bf16", "precision", "state", precision="bf16")
    elif spec.precision == "bf16-mixed":
        yield _change("--precision bf16", "precision", "state", precision="bf16")


def _of_ranks(spec: JobSpec, gpus: int) -> Iterator[Change]:
    for parallel in layouts(gpus) if spec.mode == "train" else ():
        if parallel != spec.parallel:
            yield _change(f"--parallel {parallel}", "parallel", "state", parallel=parallel)


def layouts(gpus: int) -> tuple[Parallel, ...]:
    """Ways to spread a job over ranks, plain data parallelism first."""
    if gpus == 1:
        return (ALONE,)
    found = [
        Parallel(data="ddp", replicas=gpus),
        Parallel(data="fsdp2", shards=gpus),
        Parallel(data="fsdp2", shards=gpus, reshard=False),
        Parallel(data="fsdp2", shards=gpus, offload=True),
    ]
    if gpus > NODE_RANKS and gpus % NODE_RANKS == 0:
        found.append(Parallel(data="fsdp2", replicas=gpus // NODE_RANKS, shards=NODE_RANKS))
    degrees = [tensor for tensor in TENSOR_DEGREES if gpus % tensor == 0 and gpus > tensor]
    return (*found, *(Parallel(data="fsdp2", shards=gpus // tensor, tensor=tensor) for tensor in degrees))
