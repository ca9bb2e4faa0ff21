"""What came of predicting a published figure: one record per row, in a CSV that an interrupted run goes on with."""

import csv
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

from published.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A published peak beside the predicted ones, in bytes; or why there is no prediction."""

    id: str
    """The case's."""
    source: str
    """Who published it."""
    workload: str
    """Class of workload."""
    metric: str
    """Which prediction it is held against."""
    measured: int
    """The published figure."""
    resolution: int
    """Half of its last digit's worth."""
    requested: int = 0
    """Predicted bytes asked for."""
    allocated: int = 0
    """Predicted bytes in live blocks."""
    reserved: int = 0
    """Predicted bytes in segments."""
    error_percent: float = 0.0
    """Prediction over figure, less one."""
    within_resolution: bool = False
    """Would the prediction be written with the figure's digits?"""
    seconds: float = 0.0
    """Wall time."""
    torch: str = ""
    """Release that traced."""
    failure: str = ""
    """What went wrong; the predictions are then 0."""

    @property
    def predicted(self) -> int:
        """The prediction that the figure is held against."""
        return {"requested": self.requested, "allocated": self.allocated, "reserved": self.reserved}[self.metric]

    @property
    def failed(self) -> bool:
        """Is there no prediction?"""
        return bool(self.failure)


def outcome_of(case: Case) -> Outcome:
    """Run a case. Whatever it raises becomes the outcome's failure: one row must not cost the others."""
    started = time.perf_counter()
    same = {
        "id": case.id,
        "source": case.source,
        "workload": case.workload,
        "metric": case.metric,
        "measured": case.measured,
        "resolution": case.resolution,
        "torch": version("torch"),
    }
    try:
        prediction = asdict(case.predict())
    except Exception as error:  # noqa: BLE001 - sources run foreign code
        text = " ".join(str(error).split())
        return Outcome(**same, failure=f"{type(error).__name__}: {text[:300]}")  # type: ignore[arg-type]
    off = prediction[case.metric] - case.measured
    return Outcome(
        **same,  # type: ignore[arg-type]
        **prediction,
        error_percent=round(100 * off / case.measured, 6),
        within_resolution=abs(off) <= case.resolution,
        seconds=round(time.perf_counter() - started, 1),
    )


def read(path: Path) -> dict[str, Outcome]:
    """Outcomes by id; none without the file."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: _parsed(row) for row in csv.DictReader(file)}


def _parsed(row: dict[str, str]) -> Outcome:
    parse: dict[str, Callable[[str], object]] = {
        "int": int,
        "float": float,
        "bool": lambda text: text == "True",
        "str": str,
    }
    values = {each.name: parse[_type_name(each.type)](row[each.name]) for each in fields(Outcome)}
    return Outcome(**values)  # type: ignore[arg-type]


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def write(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write all outcomes, so that a file is whole at every moment."""
    unfinished = path.with_suffix(".partial")
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Outcome)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(each) for each in outcomes)
    unfinished.replace(path)
