"""Run a loop step by step until a step leaves the state that it found: every later one is then the same."""

from collections.abc import Callable, Iterator

import torch

from memplan.errors import EstimateError
from memplan.job.usercode import user_code
from memplan.tracing.nested import tensors_in
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import Place, StepRange
from memplan.units import format_bytes

LEAST_STEPS = 2
"""The first step creates gradients and optimizer state; the second shows what every later one does."""
MOST_STEPS = 5
"""A step that has not repeated by then grows (a leak, a cache); the report says so."""
MOST_OPS_OF_HISTORY = 400_000
"""Ops after which no further step is traced to fill an optimizer's history: about a minute of them."""


class Steps:
    """Runs a loop's steps and notes where each begins and ends."""

    def __init__(self, recorder: Recorder) -> None:
        self.ranges: list[StepRange] = []
        """The steps so far."""
        self.repeats = False
        """Did the last one leave what it found?"""
        self._recorder = recorder
        self._first = (0, 0)
        self._before: list[tuple[int, Place, int]] = []
        self._growth = 0

    def run(self, loop: Iterator[None], progress: Callable[[str], None]) -> None:
        """Run steps until one repeats, at least ``LEAST_STEPS`` and at most ``MOST_STEPS``.

        Raises:
            EstimateError: User code fails, or an op has no answer on fake tensors.
        """
        while self.goes_on or self._recorder.values.decisions.turn():
            progress(f"tracing step {len(self.ranges) + 1}")
            self.begin()
            self._advance(loop)
            self.end()
        self.conclude()

    def begin(self) -> None:
        """Record from here on."""
        ledger = self._recorder.ledger
        self._first = len(self._recorder.ops), len(ledger.events)
        self._before = ledger.live_sizes()
        self._recorder.values.decisions.begin_step()
        self._recorder.recording = True

    def end(self) -> None:
        """A step ends here."""
        self._recorder.recording = False
        self._mark_optimizer_state()
        ledger, (first_op, first_event) = self._recorder.ledger, self._first
        ledger.wait()
        after = ledger.live_sizes()
        self.repeats = after == self._before
        self._growth = sum(size for size, *_ in after) - sum(size for size, *_ in self._before)
        self.ranges.append(
            StepRange(
                first_op=first_op, end_op=len(self._recorder.ops), first_event=first_event, end_event=len(ledger.events)
            )
        )

    def give_up(self) -> None:
        """The step that has begun does not end."""
        self._recorder.recording = False

    def conclude(self) -> None:
        """Say so where no step repeated."""
        if not self.repeats:
            grows = f", the last one by {format_bytes(self._growth)}" if self._growth > 0 else ""
            count = len(self.ranges)
            self._recorder.values.assume(f"the first {count} steps differ{grows}; later ones are not predicted")

    @property
    def goes_on(self) -> bool:
        """Is there a further step to trace? Of those that data were asked in, all."""
        if (asked := self._recorder.values.decisions.steps) is not None:
            return len(self.ranges) < asked
        return len(self.ranges) < LEAST_STEPS or (not self.repeats and self._goes_on())

    def _goes_on(self) -> bool:
        """May one follow a step that did not repeat? An optimizer that says how long its history may be fills it."""
        if len(self.ranges) < MOST_STEPS:
            return True
        optimizers = self._recorder.attribution.optimizers
        longest = max((length for each in optimizers for length in _histories(each)), default=0)
        return len(self.ranges) < MOST_STEPS + longest and len(self._recorder.ops) < MOST_OPS_OF_HISTORY

    def _advance(self, loop: Iterator[None]) -> None:
        try:
            with user_code(f"step {len(self.ranges) + 1}"):
                next(loop)
        except EstimateError as error:
            raise type(error)(error.what, where=self._where(error), hint=error.hint) from error.__cause__

    def _where(self, error: EstimateError) -> str | None:
        """The user's line if there is one, else the module; and the op, where one failed."""
        module = self._recorder.attribution.failing_module(error.__cause__ or error)
        place = error.where or (f"module {module}" if module else None)
        parts = [place, f"op {self._recorder.now}" if self._recorder.now else None]
        return ", ".join(part for part in parts if part) or None

    def _mark_optimizer_state(self) -> None:
        """Tell which storages are optimizer state, and of which parameter: what the optimizers seen stepping hold."""
        for optimizer in self._recorder.attribution.optimizers:
            for parameter, state in optimizer.state.items():
                for tensor in tensors_in(list(state.values()) if isinstance(state, dict) else []):
                    self._recorder.references.claim(tensor, role="optimizer_state", of=parameter)


def _histories(optimizer: torch.optim.Optimizer) -> Iterator[int]:
    """How many earlier steps an optimizer remembers at most (``torch.optim.LBFGS``); nothing without a history."""
    return (int(group["history_size"]) for group in optimizer.param_groups if group.get("history_size"))
