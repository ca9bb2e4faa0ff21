"""What a program read of its data in a real run, step by step: its trace then reads the same at the same places.

The run is made where data decide how much memory a job takes, and the job is small (``rehearsal``).
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from memplan.job.parallel import ALONE
from memplan.job.spec import FileTarget, JobSpec, ModuleTarget
from memplan.tracing.records import Trace
from memplan.tracing.turns import stretches

STEPS = 10
"""Most steps that run. Chosen: torch's L-BFGS fills its history of 100 in five by default."""
LEAST_STEPS = 2
"""Fewest: the first makes what every later one finds."""
MOST_FLOPS = 10**11
"""Of all of them together, as far as the trace tells. Chosen: a few seconds of one core."""
MOST_OPS = 60_000
"""Of the trace that shows that data decide, and of the run. Chosen: a quarter of a minute of a trace."""
MOST_BYTES = 1 << 30
"""What the job may hold at once. Chosen: any machine has it."""
KERNELS = frozenset({"aten.linalg_matrix_exp.default"})
"""Ops whose kernels go by the data (``scratch.cpu_linear_algebra``)."""
Place = tuple[str, int, int]
"""File, line, column."""
Answer = bool | int | float
"""A number that was read, or how many elements a mask selects."""


class Heard:
    """Answers of data, by step and place, in the order in which they came. Before the first step is set-up.

    Args:
        steps: What was heard in another run; none yet.
    """

    def __init__(self, steps: Sequence[Mapping[Place, Sequence[Answer]]] = ({},)) -> None:
        self._steps = [{place: deque(answers) for place, answers in step.items()} for step in steps]
        self._at = 0

    def begin_step(self) -> None:
        """The next step begins."""
        self._at += 1
        if self._at == len(self._steps):
            self._steps.append({})

    def write(self, place: Place, answer: Answer) -> None:
        """Note what was read now."""
        self._steps[self._at].setdefault(place, deque()).append(answer)

    def read(self, place: Place) -> Answer | None:
        """Return the next answer at a place; None where nothing more was read there in this step."""
        answers = self._steps[self._at].get(place)
        return answers.popleft() if answers else None

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Heard":
        """Read what ``last`` said after set-up and after each step."""
        steps = [{(file, line, column): answers for file, line, column, answers in json.loads(step)} for step in lines]
        return cls(steps or ({},))

    @property
    def last(self) -> str:
        """What the last step read, as JSON on one line."""
        return json.dumps([(*place, list(answers)) for place, answers in self._steps[-1].items()])

    def again(self) -> "Heard":
        """Return the same from its beginning, for one reader."""
        return Heard(self._steps)

    def __bool__(self) -> bool:
        """Was anything read?"""
        return any(self._steps)

    @property
    def steps(self) -> int:
        """How many steps ran."""
        return len(self._steps) - 1


def decide(trace: Trace, *peaks: tuple[int, int]) -> bool:
    """Do data decide how much memory a job takes?

    Args:
        trace: The job's.
        peaks: Of each way in which data may turn out.
    """
    return len(set(peaks)) > 1 or any(op.name in KERNELS for op in trace.ops)


def is_small(spec: JobSpec, trace: Trace, peak: int) -> bool:
    """Can a job be run here for real, in a moment?

    Args:
        spec: The job.
        trace: Its trace.
        peak: The most bytes that it may hold.
    """
    if not isinstance(spec.target, FileTarget | ModuleTarget) or spec.parallel != ALONE or spec.compile != "eager":
        return False
    first, end = trace.steps[-1].first_op, trace.steps[-1].end_op
    flops = STEPS * sum(times * op.flops for ops, times in stretches(trace, first, end) for op in ops)
    count = sum(times * len(ops) for ops, times in stretches(trace, 0, len(trace.ops)))
    return peak <= MOST_BYTES and flops <= MOST_FLOPS and count <= MOST_OPS
