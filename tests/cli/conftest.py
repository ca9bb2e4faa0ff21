"""The command line in process, with the estimate itself made by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.measure import compose
from memplan.measure.cache import Cache
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.measure.savings import Switch
from tests.report.example_estimates import FITS


@dataclass
class Library:
    """Stands in for the library call: remembers what it was asked and gives the answers that a test put in."""

    answers: tuple[Estimate, ...] = ()
    failure: BaseException | None = None
    specs: list[JobSpec] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    alloc_confs: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    switches: list[tuple[Switch, ...]] = field(default_factory=list)

    envelopes: list[bool] = field(default_factory=list)

    def estimate(
        self,
        spec: JobSpec,
        profiles: tuple[GpuProfile, ...],
        *,
        alloc_conf: str,
        timeout: float,
        progress: Callable[[str], None] | None,
        detail: str,
        switches: tuple[Switch, ...],
        envelope: bool,
        cache: Cache | None,
    ) -> tuple[RecordedEstimate, ...]:
        self.specs.append(spec)
        self.alloc_confs.append(alloc_conf)
        self.gpus += [profile.name for profile in profiles]
        self.timeouts.append(timeout)
        if self.failure is not None:
            raise self.failure
        self.details.append(detail)
        self.switches.append(switches)
        self.envelopes.append(envelope)
        return tuple(RecordedEstimate(estimate=answer, history=None) for answer in self.answers)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    stand_in = Library(answers=(FITS,))
    monkeypatch.setattr(compose, "estimate", stand_in.estimate)
    return stand_in


@pytest.fixture
def run(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """``memplan estimate model.py --gpu h100-80g`` with further words, in a folder that has a ``model.py``."""
    (tmp_path / "model.py").write_text("def model(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *words: main(["estimate", "model.py", "--gpu", "h100-80g", *words])
