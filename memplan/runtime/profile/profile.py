"""``memplan.profile``: regions of a run, and recordings of what they take."""

import functools
import inspect
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from memplan.errors import UsageError
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import DEPTHS, Depth, Region
from memplan.runtime.profile.session import ProfileSession, Settings

P = ParamSpec("P")
R = TypeVar("R")

_active: ProfileSession | None = None
"""The recording in progress; there is one allocator, and so there is one of them."""
_beginning = Lock()


def profile(
    name: str = "run",
    *,
    depth: Depth | None = None,
    device: str | None = None,
    sample_seconds: float = 0.01,
    most_events: int = 2_000_000,
) -> "Profile":
    """A region of a run, and with a depth a recording of it: ``with memplan.profile("forward"):`` or a decorator.

    Without a depth it counts to the recording in progress, in whatever function that was begun, and costs next to
    nothing where there is none; so it may stay in the code. With a depth it begins a recording, or, inside of another
    one, is a region of that.

    Args:
        name: What the region is called; equal names at the same place are one region.
        depth: ``counters`` looks at the borders of regions, ``sampled`` also in between, ``full`` at every allocation.
        device: ``cpu``, ``cuda`` or ``cuda:N``; None for the current CUDA device where there is one, else the CPU.
        sample_seconds: What should lie between two samples; more does where they would take over 1 % of a processor.
        most_events: Allocations and frees to keep at depth ``full``.

    Returns:
        A context manager and decorator. ``recording`` has the recording once it has ended, and ``step()`` marks where
        a step begins.

    Raises:
        UsageError: The arguments make no sense together.
    """
    if depth is None:
        return Profile(name, None)
    problems = [
        *([f"depth is '{depth}', not one of {', '.join(DEPTHS)}"] if depth not in DEPTHS else []),
        *(["sample_seconds must be above 0"] if not sample_seconds > 0 else []),
        *(["most_events must be above 0"] if most_events <= 0 else []),
    ]
    if problems:
        raise UsageError("; ".join(problems), where="memplan.profile")
    settings = Settings(name=name, depth=depth, device=device, sample_seconds=sample_seconds, most_events=most_events)
    return Profile(name, settings)


def recorded_regions() -> tuple[Region, ...]:
    """Regions of the recording in progress that have ended at least once; none where nobody records."""
    session = _active
    return session.ledger.regions() if session is not None else ()


class Profile:
    """A region. May be entered again, inside of itself and from several threads at once."""

    __slots__ = ("_inside", "_name", "_recording", "_session", "_settings")

    def __init__(self, name: str, settings: Settings | None) -> None:
        self._name, self._settings = name, settings
        self._session: ProfileSession | None = None
        self._recording: Recording | None = None
        self._inside = 0

    def __enter__(self) -> Self:
        session = _active
        if session is not None:
            self._inside += session is self._session
            session.ledger.enter(self, self._name)
        elif self._settings is not None:
            self._begin(self._settings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = _active
        if session is None:
            return
        if session is self._session and not self._inside:
            self._end(session, failed=kind is not None)
            return
        self._inside -= session is self._session
        session.ledger.leave(self, failed=kind is not None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function as a region.

        Raises:
            UsageError: It gives control away before it ends, so that regions would not nest.
        """
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            what = f"{function.__qualname__} is no plain function: others run before it ends"
            raise UsageError(what, where="memplan.profile", hint="put 'with memplan.profile(...)' around what it does")

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._settings is None:
                if _active is None:
                    return function(*args, **kwargs)
                with self:
                    return function(*args, **kwargs)
            run = Profile(self._name, self._settings)
            try:
                with run:
                    return function(*args, **kwargs)
            finally:
                self._recording = run._recording or self._recording

        return inside

    @property
    def recording(self) -> Recording:
        """What was recorded, once it has ended.

        Raises:
            UsageError: Nothing was.
        """
        if self._recording is None:
            what = "there is no recording: it goes on, or it was only a region of another one"
            raise UsageError(what, where="memplan.profile", hint="the outermost one needs a depth: depth='counters'")
        return self._recording

    def step(self) -> None:
        """A step of training begins here; what precedes the first one is set-up. Without a recording, nothing."""
        if _active is not None:
            _active.step()

    def _begin(self, settings: Settings) -> None:
        global _active  # noqa: PLW0603
        with _beginning:
            if _active is not None:
                _active.ledger.enter(self, self._name)
                return
            self._session = ProfileSession(settings)
            _active = self._session

    def _end(self, session: ProfileSession, *, failed: bool) -> None:
        global _active
        # Before it ends: other threads must find none rather than one that has ended.
        _active, self._session = None, None
        self._recording = session.finish(failed=failed)
