"""Settings that cannot stand in one job: what they come to is known, so no such way is offered or traced."""

from collections.abc import Callable

from memplan.job.optimizers import IMPLEMENTATIONS
from memplan.job.spec import JobSpec, OptimizerName

UNSHARDABLE: frozenset[OptimizerName] = frozenset({"adamw-8bit", "paged-adamw-8bit", "adafactor"})
"""Optimizers that stop at FSDP2's DTensors: bitsandbytes' kernels (its issue 1633), and torch's Adafactor, which takes
the power of a partial norm in place (torch 2.13)."""


def excluded(spec: JobSpec) -> bool:
    """Does a job ask for what cannot be had together?"""
    return any(rule(spec) for rule in _RULES)


def under_deepspeed(spec: JobSpec) -> bool:
    """Does DeepSpeed's engine run the steps?"""
    return spec.parallel.data.startswith("zero")


def _gradient_is_needed_later(spec: JobSpec) -> bool:
    """``tracing/in_backward.py`` refuses it."""
    waits = spec.grad_accum > 1 or spec.clip_grad_norm is not None or spec.precision == "fp16-mixed"
    return spec.optimizer_in_backward and (waits or under_deepspeed(spec))


def _optimizer_takes_no_shards(spec: JobSpec) -> bool:
    return spec.parallel.data == "fsdp2" and spec.optimizer in UNSHARDABLE


def _optimizer_is_not_made_so(spec: JobSpec) -> bool:
    return spec.optimizer is not None and spec.optimizer_impl not in IMPLEMENTATIONS[spec.optimizer]


def _ring_has_no_kernel(spec: JobSpec) -> bool:
    """Keys and values go around the ring of fused kernels alone (``torch.distributed.tensor.experimental``)."""
    return spec.parallel.context > 1 and spec.attention == "math"


def _adapters_are_not_shared(spec: JobSpec) -> bool:
    """Layers that transformers shared by columns and rows meet adapters of peft that nobody has shared (peft 0.21)."""
    return spec.parallel.tensor > 1 and spec.lora is not None


def _loss_is_not_in_the_chain(spec: JobSpec) -> bool:
    """A chunked loss is inside the model's forward, a pipeline's after its last block."""
    return spec.parallel.pipeline > 1 and spec.loss_chunks > 1


def _saved_twice(spec: JobSpec) -> bool:
    """``tracing/saved.py`` refuses it."""
    return spec.offload_activations and spec.compress_activations != "none"


_RULES: tuple[Callable[[JobSpec], bool], ...] = (
    _gradient_is_needed_later,
    _optimizer_takes_no_shards,
    _optimizer_is_not_made_so,
    _ring_has_no_kernel,
    _adapters_are_not_shared,
    _loss_is_not_in_the_chain,
    _saved_twice,
)
