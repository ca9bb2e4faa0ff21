"""Device bytes that a way needs at least, by what was traced.

With a larger micro-batch every tensor is as large at least. What kernels take for themselves need not be. However ranks
share the state, activations of as many samples are the same.
"""

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.recommend.known import SAVED, SIZES, KnownWays, Traced
from memplan.plan.recommend.states import degree, elements_of, gathered_of, kept_of, states_of


def least_bytes(known: KnownWays, spec: JobSpec, profile: GpuProfile) -> int:
    """Device bytes that a way needs at least; 0 where nothing is known."""
    apart = known.apart()
    held = max((_held(known, each, spec) for each in known.alike_but(spec, SIZES)), default=0.0)
    states = max((states_of(each.floor, each.states, each.spec, spec) for each in apart), default=0.0)
    elements = max((elements_of(each.floor, each.spec, spec) for each in apart), default=0.0)
    most = max(held, states, elements, _forward(known, spec))
    return int(most) + profile.context_bytes if most else 0


def _held(known: KnownWays, traced: Traced, spec: JobSpec) -> float:
    one = traced.spec
    if not known.is_compared(one.batch_size, spec.batch_size):
        return 0.0
    floor = traced.floor
    live = floor.live_without_gradients if one.grad_accum > 1 and spec.grad_accum == 1 else floor.live
    # Another implementation of the update takes other temporaries in its own phase alone.
    is_same_update = one.optimizer_impl == spec.optimizer_impl
    return max((size for phase, size in live.items() if is_same_update or phase != "optimizer"), default=0.0)


def _forward(known: KnownWays, spec: JobSpec) -> float:
    """Bytes in forward: states that are kept, and what is gathered then or activations of such samples."""
    apart = known.apart()
    kept = max((kept_of(each.floor, each.states, each.spec, spec) for each in apart), default=0.0)
    gathered = max((gathered_of(each.floor, each.states, each.spec, spec) for each in apart), default=0.0)
    alike = [each for each in known.alike_but(spec, SAVED) if _saves(known, each.spec, spec)]
    return kept + max((gathered, *(each.floor.activations for each in alike)))


def _saves(known: KnownWays, one: JobSpec, spec: JobSpec) -> bool:
    """Has a way all activations of another? What an implementation of data parallelism casts, another does not."""
    is_whole = degree(one.parallel) == degree(spec.parallel) == 1 and one.parallel.data == spec.parallel.data
    if one.parallel != spec.parallel and not is_whole:
        return False
    # Outputs of a former micro-batch may be there, too.
    is_first = one.grad_accum == 1 or spec.grad_accum > 1
    smaller = one.batch_size <= spec.batch_size and known.is_compared(one.batch_size, spec.batch_size)
    return is_first and smaller
