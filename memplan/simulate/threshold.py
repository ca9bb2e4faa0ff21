"""``--fail-on fragmentation>10%``: a figure of the setting that a job runs with, and what it may be at most."""

import re
from dataclasses import dataclass

from memplan.errors import UsageError
from memplan.simulate.records import PolicyRun, Simulation
from memplan.units import format_bytes, parse_size

_FORM = re.compile(r"\s*(fragmentation|reserved|drift)\s*>\s*(\S+)\s*")
FORMS = "write fragmentation>10%, reserved>40GiB or drift>1GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What fails a simulation."""

    figure: str
    """``fragmentation``, a share; ``reserved`` or ``drift``, bytes: as ``PolicyRun`` has them."""
    most: float
    """The most that it may be."""

    def passed_by(self, run: PolicyRun) -> str:
        """Return in words by how much a run is beyond; empty where it is not."""
        if run.out_of_memory is not None:
            return f"{run.name} runs out of memory in step {run.failed_step}"
        value = {"fragmentation": run.fragmentation, "reserved": run.peak_reserved, "drift": run.drift}[self.figure]
        if value <= self.most:
            return ""
        return f"{self.figure} of {run.name} is {self._words(value)}, over {self._words(self.most)}"

    def _words(self, value: float) -> str:
        return f"{100 * value:.1f} %" if self.figure == "fragmentation" else format_bytes(int(value))


def parse_threshold(text: str) -> Threshold:
    """Read a threshold.

    Raises:
        UsageError: It is none.
    """
    match = _FORM.fullmatch(text)
    try:
        most = _most(*match.groups()) if match else None
    except ValueError:
        most = None
    if match is None or most is None:
        raise UsageError(f"--fail-on '{text}' is no threshold", hint=FORMS)
    return Threshold(figure=match[1], most=most)


def _most(figure: str, text: str) -> float | None:
    if figure != "fragmentation":
        return parse_size(text)
    share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    return share if 0 <= share <= 1 else None


def judged_run(simulation: Simulation, confs: tuple[str, ...]) -> PolicyRun:
    """Return the run of the setting that the job has: the first that was typed, else PyTorch's defaults."""
    wanted = confs[0] if confs else ""
    return next((run for run in simulation.policies if run.conf == wanted), simulation.policies[0])
