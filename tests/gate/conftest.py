"""The gate in process, on a project of two jobs, with the estimates themselves made by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.errors import EstimateError, MemplanError
from memplan.hardware.profile import GpuProfile
from memplan.job.reads import Reads
from memplan.measure import compose
from memplan.measure.digest_records import Curve, HistoryDigest
from memplan.measure.records import Advice, Estimate, RecordedEstimate, Verdict
from memplan.units import GIB
from tests.report.example_estimates import FITS

PROJECT = """
gpus = ["h100-80g", "a100-40g"]

[[job]]
name = "llama"
target = "model.py"

[[job]]
name = "bert"
target = "model.py"
batch-size = 2
gpus = ["t4"]
"""


@dataclass
class Jobs:
    """Stands in for the library call: batch size → peak in GiB, or what is raised."""

    peaks: dict[int, float] = field(default_factory=lambda: {1: 30.0, 2: 9.0})
    failures: dict[int, BaseException] = field(default_factory=dict)
    torch_version: str = "2.13.0"
    ran: list[int] = field(default_factory=list)

    def estimate(
        self, asked: compose.Asked, *, folder: Path | None, timeout: float, progress: object
    ) -> compose.Answered:
        spec = asked.spec
        self.ran.append(spec.batch_size)
        if spec.batch_size in self.failures:
            raise self.failures[spec.batch_size]
        peak = int(self.peaks[spec.batch_size] * GIB)
        digest = flat(peak) if asked.detail == "timelines" else None
        made = (
            RecordedEstimate(estimate=self._one(each, peak), history=None, digest=digest) for each in asked.profiles
        )
        return tuple(made), Reads(files={}, environment={})

    def _one(self, profile: GpuProfile, peak: int) -> Estimate:
        """All of the peak is one module's activations."""
        verdict = Verdict.OOM if peak > profile.usable_bytes else Verdict.FITS
        gpu = replace(FITS.gpu, name=profile.name, total_bytes=profile.total_bytes, usable_bytes=profile.usable_bytes)
        owner = replace(FITS.owners[0], module="layers.3.mlp", source="model.py:2", bytes=peak)
        return replace(
            FITS,
            verdict=verdict,
            gpu=gpu,
            peak=replace(FITS.peak, device_bytes=peak, low_bytes=peak, high_bytes=peak),
            breakdown={**dict.fromkeys(FITS.breakdown, 0), "activation": peak},
            owners=(owner,),
            advice=(Advice(change="--checkpoint full", device_bytes=profile.usable_bytes - GIB, slowdown=0.3),)
            if verdict is Verdict.OOM
            else (),
            torch_version=self.torch_version,
        )


def flat(peak: int) -> HistoryDigest:
    """A history of one moment."""
    curve = Curve(events=(0,), allocated=(peak,), reserved=(peak,), categories={"activation": (peak,)})
    return HistoryDigest(
        events=1, peak_event=0, reserved_peak_event=0, spans=(), curve=curve, holders=(), buffers=(),
        buffers_left_out=0, segments=(),
    )  # fmt: skip


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    stand_in = Jobs()
    monkeypatch.setattr(compose, "estimate_and_reads", stand_in.estimate)
    return stand_in


@pytest.fixture
def project(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text("def model():\n    return 1\n")
    (tmp_path / "memplan.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


@pytest.fixture
def gate(project: Path) -> Callable[..., int]:
    return lambda *words: main(["gate", "--cache-dir", "cache", *words])


@pytest.fixture
def with_keys(project: Path) -> Callable[[str], None]:
    """Adds a line to the top of the project file."""

    def add(line: str) -> None:
        file = project / "memplan.toml"
        file.write_text(line + "\n" + file.read_text())

    return add


def failure(what: str = "no answer") -> MemplanError:
    return EstimateError(what, where="model.py:2", hint="look there")
