"""Trace the step with a choice in force, and measure what it takes."""

from collections.abc import Callable
from dataclasses import dataclass

from memplan.hardware.profile import GpuProfile
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.roofline import Roofline
from memplan.measure.played import play_on_device
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.probe.build import position_stretches
from memplan.plan.checkpoint.blocks.probe.cut import cut_like
from memplan.plan.checkpoint.blocks.probe.figures import true_peaks
from memplan.plan.checkpoint.blocks.probe.read import read
from memplan.plan.checkpoint.blocks.probe.run import Probing
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.plan.checkpoint.blocks.problem.copies import backlogs, fetches
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.prove.records import TracedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Traces of one job on one device, each with another choice in force."""

    tracer: Tracer
    """Traces the job."""
    profile: GpuProfile
    """The device."""
    roofline: Roofline
    """Its rates."""
    probing: Probing
    """The probes, the unplanned step first."""
    problem: BlockProblem
    """The problem that choices solve."""
    progress: Callable[[str], None]
    """Told what happens now."""

    def unplanned(self) -> TracedPlan:
        """Return the step as it is, which the first probe traced."""
        probe = self.probing.probes[0]
        return self._measured(BlockChoice(options=probe.options), probe)

    def trace(self, choice: BlockChoice) -> TracedPlan:
        """Trace the step with a choice in force."""
        self.progress("tracing the plan")
        trace = self.tracer.trace(plan_for(self.problem, choice))
        reading = read(trace, cut_like(trace, self.probing.probes[0].reading.cut))
        return self._measured(choice, Probe(reading=reading, options=choice.options))

    def _measured(self, choice: BlockChoice, probe: Probe) -> TracedPlan:
        trace = probe.reading.trace
        self.progress(f"replaying on {self.profile.name}")
        memory = play_on_device(build_lifetimes(trace), self.profile).memory
        step = trace.steps[-1]
        ops = trace.ops[step.first_op : step.end_op]
        peaks = true_peaks(probe)
        still = [peaks[stretch] for stretch in position_stretches(self.probing.probes)]
        # A trace moves tensors to the host and back as fast as the device's own memory is.
        stretches = [probe.reading.cut.stretches[index] for index in position_stretches(self.probing.probes)]
        computing = [self.roofline.total(trace.ops[each.first_op : each.end_op]) for each in stretches]
        waits = fetches(self.problem, choice, computing).waits
        live = [sum(pair) for pair in zip(still, backlogs(self.problem, choice).outward, strict=True)]
        return TracedPlan(
            choice=choice,
            probe=probe,
            live=tuple(live),
            device_bytes=memory.peak_reserved + self.profile.context_bytes + max(live) - max(still),
            seconds=self.roofline.total(ops) + sum(choice.stalls) + sum(waits),
            flops=sum(op.flops for op in ops),
        )
