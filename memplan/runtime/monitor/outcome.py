"""What came of a watched run. Torch-free; bytes are integers."""

from dataclasses import dataclass

from memplan.findings.records import Finding
from memplan.runtime.monitor.records import Check, Level, RunPlan
from memplan.runtime.monitor.wire import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the run ended, as far as anybody can tell."""

    code: int
    """Exit code of the command; negative: the signal that ended it."""
    seconds: float
    """Wall time of the command."""
    oom: Message | None
    """The last CUDA allocation that failed for good, from the process's own allocator."""
    ooms: int
    """How many did."""
    why: str
    """The exception that ended a process of the run; empty where none did, or nobody could tell."""
    oom_kills: int
    """Processes that the kernel killed for lack of memory meanwhile, in this container or, without one, anywhere."""

    @property
    def exit_code(self) -> int:
        """As a shell says it: 128 and the signal's number."""
        return 128 - self.code if self.code < 0 else self.code


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """Why a run ran out of memory."""

    code: str
    """``MM101`` …: symptom, cause and fix stand in ``memplan.findings.rules``."""
    sentence: str
    """What happened, with its figures."""
    prediction: str
    """What this says of the prediction."""
    snapshot: str
    """The allocator's state when it failed, for ``memplan snapshot``; empty where there is none."""
    last: tuple[Check, ...]
    """The last checks before the end, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level of the run changed."""

    seconds: float
    """Since the command was started."""
    step: int | None
    """Optimizer step, where known."""
    level: Level
    """The new one."""
    sentence: str
    """The worst reason; empty where it is normal again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that one device had in use at any check."""

    device: str
    """As in its readings."""
    name: str
    """The driver's name."""
    rank: int | None
    """Rank of the process that read it."""
    total: int
    """All there is."""
    used: int
    """Of all processes; on the CPU of those of the run."""
    allocated: int | None
    """In live blocks: the allocator's own peak."""
    reserved: int | None
    """In segments, likewise."""
    figure: str
    """Which of these is held against the plan; may be empty."""
    measured: int | None
    """That figure."""
    predicted: int | None
    """The plan's."""
    predicted_high: int | None
    """The upper end of its interval."""
    fragmentation: float | None
    """Largest share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A watched run, from its start to its end."""

    command: tuple[str, ...]
    """What was run."""
    plan: RunPlan | None
    """What was predicted."""
    ending: Ending
    """How it ended."""
    checks: int
    """How many were made."""
    steps: int | None
    """Optimizer steps, where known."""
    level: Level
    """The worst of all checks."""
    changes: tuple[LevelChange, ...]
    """Levels over time; the first is that of the first check."""
    peaks: tuple[Peak, ...]
    """One for each device."""
    resident: int
    """Most resident memory of all processes of the command together; pages that they share count for each."""
    curve: tuple[tuple[float, int, int], ...]
    """Seconds, bytes in live blocks (0 where nobody counts them), and bytes held, of the first device.

    Held is what is in segments, else all that is in use; on the CPU resident memory. A few hundred points.
    """
    recommendations: tuple[Finding, ...]
    """What was recommended at any time, worst first."""
    post_mortem: PostMortem | None
    """Why it ran out of memory; None where it did not."""
    notes: tuple[str, ...]
    """What could not be seen, and why."""
