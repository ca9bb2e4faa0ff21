"""Hold memplan's scratch of CUDA kernels against what a card took, family by family: no GPU is needed.

    python benchmarks/gpu/kernels.py [FILE ...] [--wrong N]

FILE is what ``cudnn_space.py`` or ``operators.py`` wrote; without one, all in ``results``. The same calls are traced
for the card and the release of torch. *Exact* are ops whose allocations have the same sizes in the same order;
*inside* those that differ by work space within its bounds alone; *told* those that the report names as left out, and
results whose size only data decides; *silent* all others, which are wrong numbers. ``convolutions.py`` has real nets.
"""

import argparse
import gzip
import importlib.util
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

if importlib.util.find_spec("memplan") is None:
    sys.path.insert(0, str(Path(__file__).parents[2]))

import cudnn_calls
import operators
import torch

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.cuda.release import VARIABLE
from memplan.tracing.decisions import Decisions
from memplan.tracing.ledger import Ledger
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_table import not_covered
from memplan.tracing.session import session

RESULTS = Path(__file__).parent / "results"
DEVICE = torch.device("cuda")
CARD = "h200"
OF_DATA = frozenset({"aten.nonzero.default", "aten.index.Tensor", "aten.bincount.default"})
"""Ops whose results are as large as data says."""
VERDICTS = ("exact", "inside", "told", "silent")
Call = Callable[[], Any]
Sizes = list[tuple[int, int | None]]
"""Allocated bytes, and the most where a closed library knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One op, or one call of several, beside its measurement."""

    family: str
    """Row of the table."""
    name: str
    """What was called."""
    verdict: str
    """A column of the table."""
    ours: Sizes
    theirs: Sequence[int]

    @property
    def miss(self) -> int:
        """Bytes that are predicted too many, or too few."""
        return sum(size for size, _ in self.ours) - sum(self.theirs)


def traced(calls: Iterable[tuple[str, Call]]) -> Iterator[tuple[str, list[tuple[str, Sizes]]]]:
    """Trace calls: for each its name and its ops, with what each allocates on the device."""
    spec = JobSpec(target=FileTarget(path=Path(__file__)))
    device = DeviceTraits.of(load_profile(CARD))
    with session(spec, device, rank=0, decisions=Decisions()) as here:
        recorder = here.recorder
        recorder.references.default_place = "device"
        recorder.recording = True
        for name, call in calls:
            first, events = len(recorder.ops), len(recorder.ledger.events)
            # ``operators.py`` cleared cuBLAS's work spaces before each call.
            kept = recorder._player._kept  # noqa: SLF001
            kept -= {key for key in kept if key.startswith("cublas")}
            call()
            made = _allocated(recorder.ledger, events)
            yield name, [(op.name, made[first + at]) for at, op in enumerate(recorder.ops[first:])]
        recorder.recording = False


def _allocated(ledger: Ledger, since: int) -> defaultdict[int, Sizes]:
    made: defaultdict[int, Sizes] = defaultdict(list)
    for event in ledger.events[since:]:
        entry = ledger.entries[event.storage]
        if event.action == "alloc" and entry.place == "device" and (entry.nbytes or entry.most):
            made[event.op].append((entry.nbytes, entry.most))
    return made


def judged(family: str, name: str, ops: Sequence[tuple[str, Sizes]], theirs: Sequence[int]) -> Held:
    """Compare what ops allocate with what they really did."""
    ours = [size for _, sizes in ops for size in sizes]
    names = {op for op, _ in ops}
    if [nbytes for nbytes, _ in ours if nbytes] == list(theirs):
        verdict = "exact"
    elif _inside(ours, theirs):
        verdict = "inside"
    else:
        verdict = "told" if not_covered(names) or names & OF_DATA else "silent"
    return Held(family=family, name=name, verdict=verdict, ours=ours, theirs=theirs)


def _inside(ours: Sizes, theirs: Sequence[int]) -> bool:
    """Do they differ by bounded sizes alone? A library that needs nothing is not seen."""
    if not ours:
        return not theirs
    (likely, most), rest = ours[0], ours[1:]
    if most is None:
        return bool(theirs) and theirs[0] == likely and _inside(rest, theirs[1:])
    taken = bool(theirs) and theirs[0] <= most and _inside(rest, theirs[1:])
    return taken or _inside(rest, theirs)


def of_operators(content: dict[str, Any]) -> Iterator[Held]:
    """PyTorch's own kernels: whole calls."""
    families = operators.products, operators.grouped, operators.along
    # They make their tensors as they go: in the trace.
    for name, ops in traced(pair for family in families for pair in family(DEVICE)):
        if not isinstance(events := content["events"][name], str):
            family = " ".join(word for word in name.split() if not word[0].isdigit())
            yield judged(family, name, ops, [size for size in events if size > 0])


def of_cudnn(content: dict[str, Any]) -> Iterator[Held]:
    """What cuDNN runs: op by op."""
    cases = content["cases"]
    calls = ((str(row["case"]), lambda case=row["case"]: cudnn_calls.make(case, DEVICE)) for row in cases)
    for row, (label, ops) in zip(cases, traced(calls), strict=True):
        waiting = list(ops)
        for name, events, *_ in row["ops"]:
            at = next((i for i, (op, _) in enumerate(waiting) if op.split(".")[1] == name), None)
            if at is not None and LIBRARY & set(name.split("_")):
                theirs = [size for size in events if size > 0]
                yield judged(_family(row["case"], name), label, [waiting[at]], theirs)
            # What a graph of fake tensors does not dispatch allocates nothing here.
            waiting = waiting if at is None else waiting[at + 1 :]


LIBRARY = frozenset({"convolution", "rnn", "norm", "cudnn"})
"""Words of the names of ops that are compared."""


def _family(case: dict[str, Any], name: str) -> str:
    groups = case.get("g", 1)
    parts = [
        case.get("m", f"{len(case['s'])}-D" if "s" in case else ""),
        "transposed" if "c" in case and case.get("t") else "",
    ]
    if groups > 1:
        parts.append("depthwise" if groups == case["c"] else "grouped")
    parts += ["channels-last" if case.get("cl") else "", "" if case.get("dt", "f32") == "f32" else "half"]
    return " ".join([name, *(part for part in parts if part)])


def held(path: Path) -> list[Held]:
    """Everything in a file."""
    data = path.read_bytes()
    content = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    release = content["environment"]["torch"] if "cases" in content else content["versions"]["torch"]
    with patch.dict(os.environ, {VARIABLE: release}):
        return list(of_cudnn(content) if "cases" in content else of_operators(content))


def main() -> None:
    """Print a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--wrong", type=int, default=0, help="so many calls of each family that are silently wrong")
    options = parser.parse_args()
    for path in options.files or [*sorted(RESULTS.glob("operators/*")), *sorted(RESULTS.glob("cudnn/*"))]:
        rows: defaultdict[str, list[Held]] = defaultdict(list)
        for each in held(path):
            rows[each.family].append(each)
        print(
            f"{path.name}\n{'':<58}{'':>6}" + "".join(f"{each:>8}" for each in VERDICTS) + f"{'worst silent miss':>20}"
        )
        for family, found in [*sorted(rows.items()), ("all", [each for one in rows.values() for each in one])]:
            counts = [sum(each.verdict == verdict for each in found) for verdict in VERDICTS]
            silent = [each for each in found if each.verdict == "silent"]
            worst = f"{max((each.miss for each in silent), key=abs):+,}" if silent else ""
            print(f"{family:<58}{len(found):>6}" + "".join(f"{count:>8}" for count in counts) + f"{worst:>20}")
            for each in silent[: options.wrong if family != "all" else 0]:
                print(f"    {each.name}: {each.ours}, really {list(each.theirs)}")


if __name__ == "__main__":
    main()
