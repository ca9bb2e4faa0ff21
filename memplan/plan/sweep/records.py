"""What is swept, how, and what came of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memplan.errors import ExitCode
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.plan.recommend.records import Evaluated, Recommendation, Search

Backend = Literal["loky", "dask", "ray"]
"""What carries the searches: processes of this machine, or a cluster."""
PROCESSES = 2
"""Traces at once in each search: with fewer, ``recommend`` would run user code in its own process."""
State = Literal["as given", "changed", "no", "unknown"]
"""Does the job fit: as it is, with what is recommended, in no way that was found; or does nobody know?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """The request of a sweep."""

    backend: Backend = "loky"
    """What carries the searches."""
    address: str | None = None
    """Of the cluster; None: one is started on this machine, and ended with the sweep."""
    gpus: int | None = None
    """How many of each GPU; None: the job's own ranks."""
    search: Search = field(default_factory=Search)
    """How each search goes; its number of GPUs is the one above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """One job on one GPU, as it travels to a worker."""

    job: str
    """Its name."""
    spec: JobSpec
    """What is searched; relative paths begin at ``folder``."""
    profile: GpuProfile
    """The device."""
    search: Search
    """How to search, for how many devices."""
    timeout: float
    """Seconds for one trace."""
    folder: Path
    """Where memplan was started: the same place on every machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One job on one GPU."""

    job: str
    """Its name."""
    gpu: str
    """The profile's name."""
    gpus: int
    """How many of them."""
    answer: Recommendation | None
    """None where there is none."""
    error: str = ""
    """Why there is none."""
    seconds: float = 0.0
    """Wall time on the worker, the start of processes included."""

    @property
    def best(self) -> Evaluated | None:
        """The recommended configuration; None where nothing fits, or nobody knows."""
        return self.answer.best if self.answer is not None else None

    @property
    def was_cut(self) -> bool:
        """Did the search end before it was clear whether anything fits?"""
        return self.answer is not None and self.answer.proof.ending == "not_found"

    @property
    def state(self) -> State:
        """Does the job fit?"""
        if self.answer is None:
            return "unknown"
        given = self.answer.baseline
        if given is not None and given.fits:
            return "as given"
        return "changed" if self.answer.best is not None else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The answer."""

    project: Path
    """The project file."""
    backend: Backend
    """What carried the searches."""
    rows: tuple[SweepRow, ...]
    """In the order of the file, its GPUs in theirs."""
    notes: tuple[str, ...] = ()
    """What the project says and a search does not look at."""
    seconds: float = 0.0
    """Wall time."""

    @property
    def exit_code(self) -> ExitCode:
        """3 where a job has no answer on a GPU, or provably none; 4 where none was found in the budget."""
        left = [row for row in self.rows if row.best is None]
        if not left:
            return ExitCode.DONE
        return ExitCode.NOT_FOUND if all(row.was_cut for row in left) else ExitCode.UNKNOWN
