"""``memplan.batch``, ``checkpoint_plan``, ``recommend``, ``reuse_plan`` and ``trace``: what the commands answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memplan.api.jobs import DEFAULT_GPU, job_of
from memplan.errors import UsageError
from memplan.findings.utilization import Utilization
from memplan.measure.graphs import JobGraphs
from memplan.plan.batch.records import BatchAnswer, Variable
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.recommend.records import Group, Recommendation, Search
from memplan.plan.reuse.answer_records import ReuseAnswer
from memplan.units import parse_size

if TYPE_CHECKING:
    import torch


def batch(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Callable[..., Any] | None = None,
    *,
    loss: "Callable[..., Any] | str | None" = None,
    optimizer: Any = None,
    step: Callable[..., Any] | None = None,
    gpu: str = DEFAULT_GPU,
    of: Variable = "batch_size",
    utilization: Utilization | None = None,
    **options: Any,
) -> BatchAnswer:
    """Find the largest batch, or sequence, that fits.

    Args:
        model: As of ``memplan.estimate``, and so all that is not named here.
        batch: A function ``(batch_size)`` or ``(batch_size, seq_len)``; None: worked out from the model.
        loss: As there.
        optimizer: As there.
        step: As there.
        gpu: A profile.
        of: What is enlarged: ``batch_size`` or ``seq_len``.
        utilization: Room to leave; None leaves what the interval needs.
        options: As there.

    Returns:
        The answer; ``ended`` says how it is known.

    Raises:
        UsageError: Something that was given cannot be: a batch that is no function has a size already.
        EstimateError: The step cannot be traced.
    """
    if batch is not None and not callable(batch):
        raise UsageError("batch: one that is given has a size already", hint="give a function of batch_size")
    parts = {"loss": loss, "optimizer": optimizer, "step": step}
    with job_of(model, batch, **parts, gpu=gpu, options=options) as job:
        if not job.is_live:
            from memplan.plan.batch.compose import largest_batches

            [answer] = largest_batches(job.spec, (job.profile,), variable=of, utilization=utilization)
            return answer
        from memplan.measure.measurer import measuring
        from memplan.plan.batch.flow import largest_here

        with measuring() as measurer:
            return largest_here(job.spec, job.profile, measurer, variable=of, utilization=utilization)


def checkpoint_plan(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Any = None,
    *,
    loss: "Callable[..., Any] | str | None" = None,
    optimizer: Any = None,
    step: Callable[..., Any] | None = None,
    gpu: str = DEFAULT_GPU,
    budget: str | int | None = None,
    blocks: Sequence[str] = (),
    offload: bool = False,
    **options: Any,
) -> CheckpointAnswer:
    """Find the cheapest checkpoints that keep the peak under a budget.

    Args:
        model: As of ``memplan.estimate``, and so all that is not named here.
        batch: As there.
        loss: As there.
        optimizer: As there.
        step: As there.
        gpu: A profile.
        budget: Device peak at most, in bytes or as ``"20 GiB"``; None: what the GPU has.
        blocks: Names of modules to plan; empty: every repeated block.
        offload: May activations wait in host memory?
        options: As there.

    Returns:
        The answer; ``outcome`` says how it ended, ``plan`` is what ``memplan.apply`` puts into force.

    Raises:
        UsageError: Something that was given cannot be, or there are no blocks.
        EstimateError: The step cannot be traced.
    """
    limit = parse_size(budget) if isinstance(budget, str) else budget
    parts = {"loss": loss, "optimizer": optimizer, "step": step}
    with job_of(model, batch, **parts, gpu=gpu, options=options, by_trainer=False) as job:
        from memplan.plan.checkpoint.blocks.request import BlockPlanRequest

        request = BlockPlanRequest(budget_bytes=limit, blocks=tuple(blocks), offload=offload)
        if not job.is_live:
            from memplan.plan.checkpoint.blocks.call import plan_checkpoints

            return plan_checkpoints(job.spec, job.profile, request)
        from memplan.plan.checkpoint.blocks.planning import plan_here

        return plan_here(job.spec, job.profile, request)


def reuse_plan(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Any = None,
    *,
    loss: "Callable[..., Any] | str | None" = None,
    optimizer: Any = None,
    step: Callable[..., Any] | None = None,
    gpu: str = DEFAULT_GPU,
    capacity: str | int | None = None,
    method: str = "auto",
    time_limit: float = 10.0,
    **options: Any,
) -> ReuseAnswer:
    """Place all buffers of a step in one arena, as small as the time allows.

    Args:
        model: As of ``memplan.estimate``, and so all that is not named here.
        batch: As there.
        loss: As there.
        optimizer: As there.
        step: As there.
        gpu: A profile.
        capacity: Bytes that the arena may have, or ``"2 GiB"``; None: as few as possible are wanted.
        method: Who places them, as ``memplan reuse-plan --method``.
        time_limit: Seconds for each method.
        options: As there.

    Returns:
        The answer; ``outcome`` says how it ended.

    Raises:
        UsageError: Something that was given cannot be.
        EstimateError: The step cannot be traced.
    """
    limit = parse_size(capacity) if isinstance(capacity, str) else capacity
    from memplan.plan.reuse.compose import placed, plan_reuse

    parts = {"loss": loss, "optimizer": optimizer, "step": step}
    with job_of(model, batch, **parts, gpu=gpu, options=options) as job:
        if not job.is_live:
            return plan_reuse(job.spec, job.profile, capacity=limit, method=method, time_limit=time_limit)
        from memplan.plan.reuse.from_job import gather_job

        gathered = gather_job(job.spec, job.profile, limit)
    return placed(job.name, "step", gathered, method=method, time_limit=time_limit)


def trace(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Any = None,
    *,
    loss: "Callable[..., Any] | str | None" = None,
    optimizer: Any = None,
    step: Callable[..., Any] | None = None,
    gpu: str = DEFAULT_GPU,
    code: bool = False,
    **options: Any,
) -> JobGraphs:
    """Trace a step and show it as graphs: its ops with their operational intensity, its tensors with their lifetimes.

    Args:
        model: As of ``memplan.estimate``, and so all that is not named here.
        batch: As there.
        loss: As there.
        optimizer: As there.
        step: As there.
        gpu: A profile.
        code: Is the fx graph's code wanted?
        options: As there.

    Returns:
        What ``memplan graph`` writes: ``tensors``, ``operations``, ``peak_op`` and so on.

    Raises:
        UsageError: Something that was given cannot be.
        EstimateError: The step cannot be traced.
    """
    from memplan.measure.graphs import graphs_here, job_graphs

    parts = {"loss": loss, "optimizer": optimizer, "step": step}
    with job_of(model, batch, **parts, gpu=gpu, options=options) as job:
        if not job.is_live:
            return job_graphs(job.spec, job.profile, code=code)
        return replace(graphs_here(job.spec, job.profile, code), target=job.name)


def recommend(
    target: str,
    *,
    gpu: str = DEFAULT_GPU,
    gpus: int = 1,
    allow: Sequence[Group] = (),
    keep: Sequence[Group] = (),
    time_limit: float | str = 60.0,
    **options: Any,
) -> Recommendation:
    """Find the best way to run a job on the GPUs at hand.

    Args:
        target: As ``memplan recommend`` takes it: its ways are traced in several processes, which need its file.
        gpu: A profile.
        gpus: How many of them.
        allow: What may change the numerics: ``precision``, ``optimizer``, …
        keep: What stays as it is.
        time_limit: Seconds, or as ``--time-limit`` takes it: ``"60s"``, ``"40traces"``.
        options: As of ``memplan.estimate``.

    Returns:
        The answer, with what is proved of it; ``best`` is None where nothing was found.

    Raises:
        UsageError: Something that was given cannot be.
        EstimateError: The job cannot be traced.
    """
    if not isinstance(target, str):
        raise UsageError("recommend traces in several processes", hint="put the model into a file and name that")
    from memplan.plan.recommend.compose import recommend as search
    from memplan.plan.recommend.time_limit import read_time_limit

    with job_of(target, None, loss=None, optimizer=None, step=None, gpu=gpu, options=options, by_trainer=False) as job:
        seconds, traces = read_time_limit(time_limit, "time_limit")
        asked = Search(gpus=gpus, allow=tuple(allow), keep=tuple(keep), budget_seconds=seconds, budget_traces=traces)
        return search(job.spec, job.profile, asked)
