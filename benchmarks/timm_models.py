"""Training steps of timm's models against what nvidia-smi showed of real ones: bytes a sample, and whole peaks.

    python benchmarks/timm_models.py [--only NAME …] [--choose]

``measured/timm_a100_40g.csv`` in the folder that ``MEMPLAN_DATA`` names holds the highest memory of 492 models at five
batch sizes on an A100-40G (itu-rad/GPUMemNet). Their script is not public. Resolution, precision and what its loop
holds beside the step were found from every 49th model (``--choose`` prints how far each assumption is off there), and
are the same for all; a dozen more convolutional nets were looked at for cuDNN's work space. The slope between two batch
sizes is free of the CUDA context, of weights and of optimizer states.

Slopes are those between the two largest batches that the measurements themselves say ran: a run that ended shows less
than a smaller batch, or comes after one that leaves no room for it. Every prediction is written to
``results/timm_models.csv`` at once, and not made again. Needs timm.
"""

import argparse
import csv
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

# As a script, Python finds what is beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

import timm
import torch

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec, Precision
from memplan.measure.measurer import measure

RESULTS = Path(__file__).parent / "results" / "timm_models.txt"
KEPT = RESULTS.with_suffix(".csv")
PROFILE = load_profile("a100-40g")
MIB = 2**20
EVERY = 49
"""One model in so many is one of the ten."""
CLASSES = 1000
CARD = 40_000
"""MiB: what does not fit says less than it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What is assumed of the script."""

    precision: Precision = "fp32"
    size: int | None = None
    """Pixels of a side; None: the model's own."""
    beside: int = 3
    """Batches of images that the loop holds beside the one of the step."""


CHOSEN = Loop()
"""Found with ``--choose``."""
OTHERS = (
    Loop(beside=0), Loop(beside=1), Loop(beside=2), Loop(beside=4), Loop(size=224), Loop(precision="fp16-mixed"),
)  # fmt: skip


class Trained(torch.nn.Module):
    """A classifier that returns its loss."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of a batch."""
        return torch.nn.functional.cross_entropy(self.model(images), labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Reserved MiB of one job as traced, with the least and the most that closed libraries may take."""

    likely: float
    least: float
    most: float


def predict(name: str, batch: int, loop: Loop) -> Peak:
    """Trace a model at a batch size; what the loop holds beside is added.

    Raises:
        MemplanError: It cannot be traced.
    """
    side = loop.size or timm.get_pretrained_cfg(name).input_size[-1]

    def inputs(count: int, _: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(count, 3, side, side), torch.randint(0, CLASSES, (count,))

    source = ModelSource(model=lambda: Trained(timm.create_model(name, num_classes=CLASSES)), batch=inputs)
    target = FileTarget(path=Path(__file__))
    spec = JobSpec(target=target, batch_size=batch, precision=loop.precision, optimizer="sgd")
    found = measure(spec, PROFILE, load=lambda: source)
    beside = loop.beside * batch * 3 * side * side * 4 / MIB
    ends = (found.memory, found.least, found.most)
    likely, least, most = (each.peak_reserved / MIB + beside for each in ends)
    return Peak(likely=likely, least=least, most=most)


def measured() -> Mapping[str, Mapping[int, int]]:
    """MiB by nvidia-smi, model → batch → figure; of runs that ended there is none."""
    path = Path(os.environ["MEMPLAN_DATA"]) / "measured" / "timm_a100_40g.csv"
    rows: dict[str, dict[int, int]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["timm_model"], {})[int(row["batch"])] = int(row["max_gpu_mib_nvidia_smi"])
    return {name: dict(_that_ran(sorted(found.items()))) for name, found in rows.items()}


def _that_ran(rows: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Batches double: the next one rises by at least twice what the last one rose by, unless the run ended."""
    before: list[int] = []
    for batch, figure in rows:
        due = before[-1] + 2 * (before[-1] - before[-2]) if len(before) > 1 else 0
        if due > CARD or (before and figure <= before[-1]):
            return
        before.append(figure)
        yield batch, figure


def off(predicted: float, truth: float) -> float:
    """Per cent."""
    return 100 * (predicted / truth - 1)


def slope_off(name: str, real: Mapping[int, int], loop: Loop) -> float:
    """How far the predicted slope is off, in per cent."""
    low, high = sorted(real)[-2:]
    rise = predict(name, high, loop).likely - predict(name, low, loop).likely
    return off(rise, real[high] - real[low])


def ten_of(real: Mapping[str, Mapping[int, int]]) -> Sequence[str]:
    """The models that the loop is chosen by."""
    return sorted(name for name in real if len(real[name]) > 1)[::EVERY][:10]


def choose(real: Mapping[str, Mapping[int, int]]) -> None:
    """Print how far each assumption is off on the ten models."""
    ten = ten_of(real)
    print("ten models:", ", ".join(ten))
    for loop in (CHOSEN, *OTHERS):
        found: list[float] = []
        for name in ten:
            try:
                found.append(slope_off(name, real[name], loop))
            except MemplanError as error:
                print(f"  {name}: {error.what}")
        print(f"{loop}: median of |error| {median(map(abs, found)):.2f} %;", " ".join(f"{each:+.1f}" for each in found))


def run(names: Sequence[str], real: Mapping[str, Mapping[int, int]]) -> None:
    """Predict what was not predicted yet: each model at the smallest batch and the two largest that ran."""
    done = {row["timm_model"] for row in kept()}
    for name in names:
        if name in done:
            continue
        batches = sorted(real[name])
        for batch in dict.fromkeys((batches[0], *batches[-2:])):
            row = {"timm_model": name, "batch": batch, "measured": real[name][batch]}
            try:
                peak = predict(name, batch, CHOSEN)
                row |= {"likely": f"{peak.likely:.1f}", "least": f"{peak.least:.1f}", "most": f"{peak.most:.1f}"}
            except MemplanError as error:
                row["error"] = error.what.replace("\n", " ")
            keep(row)


FIELDS = ("timm_model", "batch", "measured", "likely", "least", "most", "error")


def keep(row: Mapping[str, object]) -> None:
    """Write one row."""
    is_new = not KEPT.exists()
    with KEPT.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def kept() -> list[dict[str, str]]:
    """Rows so far."""
    if not KEPT.exists():
        return []
    with KEPT.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """MiB a sample between two batches of one model."""

    model: str
    measured: float
    likely: float
    """As predicted."""

    @property
    def off(self) -> float:
        """Per cent."""
        return off(self.likely, self.measured)


def slopes(rows: Sequence[Mapping[str, str]]) -> Iterator[Slope]:
    """The slope of every model of which two batches ran and were traced."""
    by_model: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        if not row["error"]:
            by_model.setdefault(row["timm_model"], []).append(row)
    for name, found in by_model.items():
        if len(found) < 2:
            continue
        low, high = found[-2:]
        count = int(high["batch"]) - int(low["batch"])
        rise, truth = ((float(high[field]) - float(low[field])) / count for field in ("likely", "measured"))
        yield Slope(model=name, measured=truth, likely=rise)


def _line(what: str, errors: Sequence[float]) -> str:
    size = sorted(map(abs, errors))
    if not size:
        return f"{what:58} none"
    tenth = size[len(size) * 9 // 10]
    ends = f"median {median(size):5.1f} %  nine tenths {tenth:6.1f} %  signed {median(errors):+5.1f} %"
    return f"{what:58}{len(size):5}  {ends}"


def report(rows: Sequence[Mapping[str, str]]) -> str:
    """What was traced, how far slopes and wholes are off."""
    models = {row["timm_model"] for row in rows}
    failed = {row["timm_model"]: row["error"] for row in rows if row["error"]}
    found = list(slopes(rows))
    context = PROFILE.context_bytes / MIB
    whole = [off(float(row["likely"]) + context, float(row["measured"])) for row in rows if not row["error"]]
    large = [
        off(float(row["likely"]) + context, float(row["measured"]))
        for row in rows
        if not row["error"] and int(row["measured"]) > CARD // 4
    ]
    ten = ten_of(measured())
    return "\n".join(
        [
            f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
            f"timm {version('timm')}; all as {CHOSEN}, SGD",
            "measured on an A100-40G by itu-rad/GPUMemNet with versions that are not said",
            f"{len(models) - len(failed)} of {len(models)} models traced",
            *(f"  {name}: {error[:160]}" for name, error in sorted(failed.items())),
            "",
            "bytes a sample, between the two largest batches that ran",
            _line("all models", [each.off for each in found]),
            _line("the ten that the loop was chosen by", [each.off for each in found if each.model in ten]),
            _line("all others", [each.off for each in found if each.model not in ten]),
            "",
            f"whole figures of nvidia-smi against reserved bytes and a context of {context:.0f} MiB",
            _line("all runs (FakeTensor in the same table: 45.8 %)", whole),
            _line("runs above a quarter of the card", large),
            "",
            "furthest off, MiB a sample: measured, predicted",
            *(
                f"  {each.model:44}{each.measured:9.1f}{each.likely:9.1f}  {each.off:+7.1f} %"
                for each in sorted(found, key=lambda each: -abs(each.off))[:15]
            ),
            "",
        ]
    )


def main() -> None:
    """Choose, or predict what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names, or how they begin")
    parser.add_argument("--choose", action="store_true", help="print how far other assumptions are off on ten models")
    asked = parser.parse_args()
    real = measured()
    if asked.choose:
        choose(real)
        return
    run([name for name in sorted(real) if not asked.only or name.startswith(tuple(asked.only))], real)
    text = report(kept())
    RESULTS.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
