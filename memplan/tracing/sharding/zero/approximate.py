"""ZeRO by its partition rules, where DeepSpeed is not installed: an approximation, and said to be one.

Stages 1 and 2 follow ``deepspeed/runtime/zero/stage_1_and_2.py`` (0.19.8): half weights in one flat buffer, this rank's
part of fp32 master weights, gradients copied into a bucket of ``reduce_bucket_size`` elements and out of it into this
rank's part, which ``step`` turns into fp32. Stage 3 is FSDP2's traced step, which gathers and frees in the same order,
with what ``stage3.py`` holds beside it: the bucket, this rank's part of the half weights, and gathered parameters that
are used again within ``max_reuse_distance``. The rules are those of the paper (Rajbhandari et al. 2020, section 5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.spec import JobSpec
from memplan.job.zero import APPROXIMATE, Zero
from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.tracing.loop import Parts
from memplan.tracing.sharding.world import current as ranks
from memplan.tracing.sharding.zero.settings import HALF
from memplan.tracing.sharding.zero.world import free_memory
from memplan.tracing.surroundings import Surroundings

_HINT = "pip install deepspeed (no GPU and no compiler needed: DS_BUILD_OPS=0)"
_ALIGNMENT = 2
"""Flat buffers are padded to so many times the ranks (``nccl_start_alignment_factor``)."""


def stand_in(spec: JobSpec) -> JobSpec:
    """The job that is traced in place of one of stage 3; those of stages 1 and 2 are traced as they are.

    Raises:
        UsageError: It asks for what no rule here covers.
    """
    _check(spec)
    if spec.parallel.data != "zero3":
        return spec
    half = HALF.get(spec.precision)
    mixed: Any = spec.precision if half is None else f"{half}-mixed"
    return replace(spec, parallel=replace(spec.parallel, data="fsdp2"), precision=mixed)


def _check(spec: JobSpec) -> None:
    zero = spec.zero or Zero()
    beyond = {
        "NVMe": "nvme" in (zero.offload_optimizer, zero.offload_param),
        "zero_hpz_partition_size": zero.hpz_partition_size > 1,
        "offloading parameters alone": (zero.offload_optimizer == "none") != (zero.offload_param == "none")
        and spec.parallel.data == "zero3",
        "grad_accum_dtype": zero.gradient_accumulation_dtype is not None,
        "contiguous_gradients off": not zero.contiguous_gradients,
        "ZeRO beside other parallelism": spec.parallel.ranks != spec.parallel.shards,
    }
    asked = ", ".join(what for what, is_asked in beyond.items() if is_asked)
    if asked:
        raise UsageError(f"without DeepSpeed there is no approximation of {asked}", hint=_HINT)


def hold_beside(model: nn.Module, spec: JobSpec, surroundings: Surroundings) -> Sequence[torch.Tensor]:
    """What stage 3 holds all along beside FSDP2's memory.

    The spec is the job as it was asked for; the surroundings are told what is approximated.
    """
    surroundings.assume(APPROXIMATE)
    if spec.parallel.data != "zero3":
        return ()
    zero, dtype = spec.zero or Zero(), _dtype(spec)
    _keep_what_is_used_again(model, zero.max_reuse_distance)
    bucket = torch.empty(zero.reduce_bucket_size, dtype=dtype, device="cuda")
    if dtype == torch.float32 or spec.parallel.offload:
        return (bucket,)
    elements = sum(parameter.numel() for parameter in model.parameters())
    weights = torch.empty(-(-elements // spec.parallel.shards), dtype=dtype, device="cuda")
    ranks().recorder.references.claim(weights, role="parameter", of=weights)
    return bucket, weights


def _keep_what_is_used_again(model: nn.Module, distance: int) -> None:
    """Blocks that backward needs within so many elements stay gathered after forward (``__params_to_release``)."""
    between = 0
    for name in reversed(repeated_blocks(model)):
        block: Any = model.get_submodule(name)
        if 2 * between >= distance:
            break
        if not hasattr(block, "set_reshard_after_forward"):
            raise UsageError(
                "this torch's FSDP2 cannot stand for ZeRO's stage 3", hint="install DeepSpeed, or a newer torch"
            )
        block.set_reshard_after_forward(False, recurse=False)
        between += sum(parameter.numel() for parameter in block.parameters())


def _dtype(spec: JobSpec) -> torch.dtype:
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(HALF.get(spec.precision, ""), torch.float32)


@dataclass(slots=True, kw_only=True)
class _Group:
    """Parameters that the optimizer updates alike."""

    parameters: list[nn.Parameter]
    """In the order of the flat buffer, of which each is a view."""
    weights: torch.Tensor
    """This rank's part of the flat buffer."""
    master: nn.Parameter
    """The same in fp32: what the optimizer updates."""
    starts: Mapping[int, int]
    """Identity of a parameter and its place in the flat buffer; of those of this rank alone."""
    sent: torch.Tensor | None = None
    """Gradients of the micro-batch at hand: those of this rank's parameters, whole where its part ends within one."""
    gradients: torch.Tensor | None = None
    """The same of all micro-batches of the step."""


class PartitionedEngine:
    """Stages 1 and 2 on the first rank, whose part no other exceeds.

    The model lies in host memory.
    """

    def __init__(self, parts: Parts, spec: JobSpec) -> None:
        zero = spec.zero or Zero()
        self._optimizer, self._ranks = parts.optimizer, spec.parallel.shards
        self._elements, self._buckets = zero.reduce_bucket_size, 2 if zero.overlap_comm else 1
        self._on_host = spec.parallel.offload or zero.offload_optimizer == "cpu"
        self._bucket: list[torch.Tensor] = []
        self._filled = 0
        self._at_once = spec.parallel.data == "zero2"
        parts.model.to(dtype=_dtype(spec)).to(device="cuda")
        self._groups = [self._group(group) for group in parts.optimizer.param_groups]
        for group in self._groups:
            for parameter in group.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._made, group))  # type: ignore[no-untyped-call]

    def _group(self, options: dict[str, Any]) -> _Group:
        parameters = [parameter for parameter in options["params"] if parameter.requires_grad]
        flat = _flattened(parameters, _ALIGNMENT * self._ranks)
        part = flat.narrow(0, 0, flat.numel() // self._ranks)
        master = nn.Parameter(part.detach().clone().to(device="cpu" if self._on_host else "cuda", dtype=torch.float32))
        offsets = accumulate((parameter.numel() for parameter in parameters), initial=0)
        starts = {id(each): start for each, start in zip(parameters, offsets, strict=False) if start < part.numel()}
        options["params"] = [master]
        if self._on_host:
            master.grad = torch.zeros_like(master).pin_memory()
        return _Group(parameters=parameters, weights=part, master=master, starts=starts)

    def backward(self, loss: torch.Tensor, *, is_last: bool) -> None:
        """Make gradients of one micro-batch, and keep this rank's part of them; does the optimizer step after it?"""
        loss.backward()  # type: ignore[no-untyped-call]
        if not self._at_once:
            for group in self._groups if is_last else ():
                for parameter in group.parameters:
                    self._reduce(group, parameter)
        if self._at_once or is_last:
            self._bucket.clear()
            self._filled = 0
        for group in self._groups:
            if group.gradients is not None and group.sent is not None:
                group.gradients.add_(group.sent)
            elif group.sent is not None:
                group.gradients = group.sent
            group.sent = None

    def _made(self, group: _Group, parameter: torch.Tensor) -> None:
        """The first gradient of a backward pass makes the bucket; stage 2 sends each at once."""
        assert parameter.grad is not None  # noqa: S101 - it was made just now
        if not self._bucket:
            self._bucket = [parameter.grad.new_empty(self._elements) for _ in range(self._buckets)]
        if self._at_once:
            self._reduce(group, parameter)

    def _reduce(self, group: _Group, parameter: torch.Tensor) -> None:
        """Send a gradient, and keep what of it this rank updates."""
        gradient = parameter.grad
        if gradient is None:
            return
        if self._filled + gradient.numel() > self._elements:
            self._filled = 0
        if gradient.numel() <= self._elements:
            self._bucket[0].narrow(0, self._filled, gradient.numel()).copy_(gradient.view(-1))
            self._filled += gradient.numel()
        if id(parameter) in group.starts:
            self._keep(group, gradient, group.starts[id(parameter)])
        parameter.grad = None

    def _keep(self, group: _Group, gradient: torch.Tensor, start: int) -> None:
        if self._on_host:
            assert group.master.grad is not None  # noqa: S101 - made with the group
            size = min(gradient.numel(), group.master.numel() - start)
            group.master.grad.narrow(0, start, size).copy_(gradient.reshape(-1).narrow(0, 0, size).float())
            return
        if group.sent is None:
            own = [each.numel() for each in group.parameters if id(each) in group.starts]
            group.sent = gradient.new_empty(sum(own))
            ranks().recorder.references.claim(group.sent, role="gradient", of=group.master)
        group.sent.narrow(0, start, gradient.numel()).copy_(gradient.view(-1))

    def step(self) -> None:
        """Update this rank's part and send it to all."""
        for group in self._groups:
            if group.gradients is not None:
                self._measure(group, group.gradients)
                group.master.grad = self._flat(group, group.gradients).float()
                group.gradients = None
        self._optimizer.step()
        for group in self._groups:
            if not self._on_host:
                group.master.grad = None
            group.weights.copy_(group.master.detach())

    @staticmethod
    def _measure(group: _Group, gradients: torch.Tensor) -> None:
        """The norm, of each parameter's gradient in fp64 (``get_grad_norm_direct``)."""
        for parameter in group.parameters:
            if (start := group.starts.get(id(parameter))) is not None:
                size = min(parameter.numel(), group.master.numel() - start)
                torch.linalg.vector_norm(gradients.narrow(0, start, size).double())

    @staticmethod
    def _flat(group: _Group, gradients: torch.Tensor) -> torch.Tensor:
        """This rank's part, padded, as DeepSpeed flattens it before it is turned into fp32."""
        size = group.master.numel()
        if gradients.numel() >= size:
            return gradients.narrow(0, 0, size).clone()
        return torch.cat([gradients, gradients.new_zeros(size - gradients.numel())])


def _flattened(parameters: Sequence[nn.Parameter], multiple: int) -> torch.Tensor:
    """One buffer of all parameters, each of which becomes a view of it; by way of the host where room is short."""
    elements = sum(parameter.numel() for parameter in parameters)
    padding = -elements % multiple
    if free_memory() < (elements + padding) * parameters[0].element_size():
        for parameter in parameters:
            parameter.data = parameter.data.cpu()
    flat = torch.cat([*(each.data.view(-1) for each in parameters), parameters[0].data.new_zeros(padding)]).cuda()
    start = 0
    for parameter in parameters:
        parameter.data = flat.narrow(0, start, parameter.numel()).view(parameter.shape)
        start += parameter.numel()
    return flat


def training(parts: Parts, spec: JobSpec, surroundings: Surroundings) -> Iterator[None]:
    """Forward, loss, backward, step, by the rules of stage 1 or 2; yields after every optimizer step.

    The model lies in host memory; the spec is as ``loop.under_deepspeed`` gives it.
    """
    engine = PartitionedEngine(parts, spec)
    surroundings.place_model(parts.model)
    for group in engine._groups:
        ranks().recorder.references.claim(group.master, role="optimizer_state", of=group.master)
    return _steps(parts, engine)


def _steps(parts: Parts, engine: PartitionedEngine) -> Iterator[None]:
    batch = output = loss = None
    while True:
        for number in parts.micro_batches():
            batch = None
            batch = parts.next_batch()
            output = parts.call(parts.model, batch)
            loss = parts.loss(output, batch)
            engine.backward(loss, is_last=number + 1 == parts.accumulate)
        engine.step()
        yield
