"""Bytes of weights, gradients and optimizer states that a way cannot do without, by those of another.

On one rank the whole of them is known; on several that share it evenly, too, and then of any others, of which the one
with most has the average at least.
"""

from collections.abc import Mapping

from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.lifetime.records import Category
from memplan.plan.recommend.floors import MemoryFloor
from memplan.plan.recommend.space import under_deepspeed

States = Mapping[Category, float]
"""Bytes at the peak of the optimizer's step."""
_KINDS = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)
SIXTEEN_BITS = 2
"""Bytes of an element as FSDP2 gathers it, at most."""
LEAST_SHARE = 1 << 16
"""Elements of a rank from which its states are counted in bytes an element: the scalars among them are fewer."""


def states_of(floor: MemoryFloor, states: States, known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights, gradients and optimizer states.

    Args:
        floor: Of a traced way.
        states: Of the same, in its optimizer's step.
        known: That way.
        spec: The way that was not traced.
    """
    return sum(_states(floor, states, known, spec))


def kept_of(floor: MemoryFloor, states: States, known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights and optimizer states, which are there throughout; arguments as above."""
    if not _ranks_of_all(floor, states, known):
        # Weights that were gathered for the step may be among them.
        return 0.0
    weights, _, update = _states(floor, states, known, spec)
    return weights + update


def _states(floor: MemoryFloor, states: States, known: JobSpec, spec: JobSpec) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer states."""
    part = 1.0 if known.parallel == spec.parallel else _ranks_of_all(floor, states, known) * share(spec.parallel)
    if not part:
        return 0.0, 0.0, 0.0
    weights, gradients, update = (states.get(each, 0.0) for each in _KINDS)
    if known.parallel.shards > 1 and known.parallel != spec.parallel:
        gradients, update = (_whole_elements(each, floor, known.parallel) for each in (gradients, update))
    if spec.precision != known.precision or under_deepspeed(spec) != under_deepspeed(known):
        # 16 bits instead of 32, at most; what was in 16 bits before is not less.
        weights, gradients, update = weights / 2, gradients / 2, update / 2
    if spec.lora != known.lora or spec.quantize != known.quantize:
        gradients = update = 0.0
    if spec.quantize != known.quantize:
        weights /= 8  # 4 bits instead of 32.
    if spec.optimizer != known.optimizer:
        update = 0.0
    if spec.optimizer_in_backward or known.optimizer_in_backward:
        gradients = 0.0
    return part * weights, part * gradients, part * update


def elements_of(floor: MemoryFloor, known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights and gradients at a byte an element, by the counts of a way on any ranks.

    Args:
        floor: Of a traced way.
        known: That way.
        spec: The way that was not traced.
    """
    if not _is_counted(spec):
        # Four bits an element, or whatever a program makes of them.
        return 0.0
    learns = spec.mode == "train" and spec.lora == known.lora and not spec.optimizer_in_backward
    return share(spec.parallel) * (floor.parameters + floor.trainable_parameters * learns)


def gathered_of(floor: MemoryFloor, states: States, known: JobSpec, spec: JobSpec) -> float:
    """Bytes of weights that FSDP2 has gathered at the end of a forward that frees none of them; arguments as above."""
    parallel = spec.parallel
    if parallel.data != "fsdp2" or parallel.reshard is not False or not _is_counted(spec):
        return 0.0
    whole = _ranks_of_all(floor, states, known) * states.get(Category.PARAMETER, 0.0) / max(1, floor.parameters)
    size = min(SIXTEEN_BITS, whole) if spec.precision == known.precision and whole >= 1 else 1.0
    return size * floor.parameters / (parallel.tensor * parallel.pipeline * parallel.expert)


def degree(parallel: Parallel) -> int:
    """Ranks that share the work of one sample, or the layers or experts that do it."""
    return parallel.tensor * parallel.context * parallel.pipeline * parallel.expert


def share(parallel: Parallel) -> float:
    """Share of the whole model's state that the rank with most of it has at least."""
    return 0.0 if parallel.offload else parallel.replicas / parallel.ranks


def _is_counted(spec: JobSpec) -> bool:
    return spec.quantize == "none" and not isinstance(spec.target, ScriptTarget)


def _ranks_of_all(floor: MemoryFloor, states: States, known: JobSpec) -> int:
    """Return by how many ranks' states the whole is known: 0 where shards are padded, or it cannot be told."""
    parallel, count = known.parallel, floor.parameters
    if degree(parallel) > 1 or parallel.offload:
        return 0
    if parallel.data in ("none", "ddp"):
        return 1
    # Where each is cut into equal shards, all together are the whole; padded ones are more bytes.
    size = 2 if known.precision in ("bf16", "fp16") else 4
    is_even = states.get(Category.PARAMETER, 0.0) * parallel.shards == size * count
    learns = floor.trainable_parameters >= LEAST_SHARE * parallel.shards
    return parallel.shards if parallel.data == "fsdp2" and is_even and learns else 0


def _whole_elements(nbytes: float, floor: MemoryFloor, parallel: Parallel) -> float:
    """States of a rank without the scalars that every rank has: so many whole bytes an element."""
    elements = floor.trainable_parameters / parallel.shards
    return nbytes // elements * elements if elements else 0.0
