"""What every part has at hand: the device, a folder, memplan's command, the model's step, and truths beside memplan."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.tracing.prepare import build_model, make_loop
from memplan.tracing.real_device import RealDevice

ROOT = Path(__file__).parents[3]
TARGETS = ROOT / "benchmarks/gpu/targets"
GPU = os.environ.get("MEMPLAN_WORKLOAD_GPU", "h100-80g")
"""The profile that predictions are made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that memplan says, beside what somebody else says of the same."""

    what: str
    """What is compared."""
    memplan: Any
    """What memplan says or does."""
    truth: Any = None
    """What torch, the driver or a clock says."""
    agrees: bool | None = None
    """Do they agree? None: a figure that nothing is held against."""
    note: str = ""
    """What has to be known to read it."""


def equal(what: str, ours: Any, truth: Any, note: str = "") -> Fact:
    """Both must be the same."""
    return Fact(what=what, memplan=ours, truth=truth, agrees=ours == truth, note=note)


def near(what: str, ours: float | None, truth: float | None, share: float, note: str = "") -> Fact:
    """They may differ by a share of the truth."""
    agrees = ours is not None and truth is not None and abs(ours - truth) <= share * abs(truth)
    return Fact(what=what, memplan=ours, truth=truth, agrees=agrees, note=note or f"within {share:.3%}")


def holds(what: str, condition: object, ours: Any = None, truth: Any = None, note: str = "") -> Fact:
    """Something that must be so."""
    return Fact(what=what, memplan=ours, truth=truth, agrees=bool(condition), note=note)


def figure(what: str, value: Any, truth: Any = None, note: str = "") -> Fact:
    """Nothing is asserted."""
    return Fact(what=what, memplan=value, truth=truth, note=note)


@dataclass(slots=True, kw_only=True)
class Bench:
    """One part's surroundings."""

    folder: Path
    """The folder of all parts."""
    device: str
    """``cuda`` or ``cpu``."""
    tiny: bool
    """Small sizes, to try the script itself."""
    name: str = ""
    """The part."""
    _seen: list[int] = field(default_factory=list)

    @property
    def cuda(self) -> bool:
        """Is there a card?"""
        return self.device == "cuda"

    def pick(self, *, full: Any, tiny: Any) -> Any:
        """The value for the size asked for."""
        return tiny if self.tiny else full

    @property
    def own(self) -> Path:
        """The part's own folder."""
        folder = self.folder / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else of this script uses the card meanwhile."""
        with (self.folder / "alone.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def command(self, *arguments: object, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``memplan`` in a process of its own."""
        words = [sys.executable, "-m", "memplan", *map(str, arguments)]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        surroundings = os.environ | {"PYTHONPATH": paths} | environment
        return subprocess.run(
            words, capture_output=True, text=True, timeout=timeout, check=False, env=surroundings, cwd=self.own
        )

    def answer(self, *arguments: object, timeout: float = 120, fine: Sequence[int] = (0,)) -> Any:
        """What a command writes as JSON; it gets no card to see."""
        done = self.command(*arguments, "-f", "json", timeout=timeout, CUDA_VISIBLE_DEVICES="")
        if done.returncode not in fine:
            raise RuntimeError(f"memplan {arguments[0]}: exit {done.returncode}: {done.stderr[-1500:]}")
        return json.loads(done.stdout)

    def kept(self, name: str, wait: float = 0) -> Any:
        """What an earlier part left as JSON."""
        path, until = self.folder / name, time.monotonic() + wait
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.2)
        return json.loads(path.read_text("utf-8"))

    def keep(self, name: str, content: Any) -> None:
        """Leave something as JSON for a later part."""
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(content), "utf-8")
        part.replace(self.folder / name)

    def wait(self) -> None:
        """Until the card has done all it was told."""
        if self.cuda:
            torch.cuda.synchronize()

    def stats(self) -> dict[str, int]:
        """``torch.cuda.memory_stats``, or nothing."""
        return dict(torch.cuda.memory_stats()) if self.cuda else {}

    def seconds(self, body: Callable[[], object], times: int) -> float:
        """Of one call: by CUDA's events, else by the clock; the median of all."""
        taken = []
        for _ in range(times):
            if self.cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                body()
                end.record()
                end.synchronize()
                taken.append(begin.elapsed_time(end) / 1000)
            else:
                began = time.perf_counter()
                body()
                taken.append(time.perf_counter() - began)
        return sorted(taken)[len(taken) // 2]


class Job:
    """A job's own loop on a device, as `memplan validate` runs it.

    Args:
        spec: The job.
        device: Where.
        change: Called with the model before its loop is made.
    """

    def __init__(self, spec: JobSpec, device: str, change: Callable[[torch.nn.Module], object] | None = None) -> None:
        torch.manual_seed(0)
        self._spec = spec
        self._surroundings = RealDevice(torch.device(device, 0) if device == "cuda" else torch.device(device))
        self._source = load_source(spec)
        self.model = build_model(self._source, spec, self._surroundings)
        self.changed = change(self.model) if change else None
        self._loop: Iterator[None] | None = None

    def place(self) -> None:
        """Move the model to its device: until then nothing of the job is there."""
        torch.manual_seed(0)
        self._loop = make_loop(self._source, self.model, self._spec, self._surroundings)

    def step(self) -> None:
        """One step."""
        if self._loop is None:
            self.place()
        next(self._loop)  # type: ignore[arg-type]


def spec_of(target: str, **options: Any) -> JobSpec:
    """A job of this benchmark's targets, or of a preset."""
    if target.startswith("preset:"):
        return JobSpec(target=PresetTarget(name=target.removeprefix("preset:")), **options)
    return JobSpec(target=FileTarget(path=TARGETS / f"{target}.py"), **options)


def plain(fact: Fact) -> dict[str, Any]:
    """For JSON."""
    return {key: value for key, value in asdict(fact).items() if value not in ("", None)}
