"""Where and in what form a step keeps what autograd saves: as it is, on the host, or compressed."""

from memplan.errors import UsageError
from memplan.job.spec import JobSpec
from memplan.tracing.compressed import compressing
from memplan.tracing.offloaded import Call, offloading


def saving(call: Call, spec: JobSpec, device: str) -> Call:
    """The call of a model with what the job says of saved tensors.

    Args:
        call: Calls the model on a batch.
        spec: The job.
        device: ``cuda`` or ``cpu``.

    Raises:
        UsageError: Both ways are asked for, or one that the device does not have.
    """
    if spec.offload_activations and spec.compress_activations != "none":
        what = "--offload-activations and --compress-activations are two answers to one question"
        raise UsageError(what, hint="leave one of them out")
    if spec.offload_activations:
        return offloading(call, device)
    return call if spec.compress_activations == "none" else compressing(call, spec.compress_activations)
