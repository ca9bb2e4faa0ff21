"""Which work space cuDNN took for each convolution of the measured runs, and how often the likely size is that.

    python benchmarks/gpu/convolutions.py                      # hold today's rules against the calls kept in DATA
    python benchmarks/gpu/convolutions.py --extract NAME ...   # find the calls of these workloads in the results again

To extract, a workload's first step is traced with work spaces that no device gives, and aligned with the real stream:
what the real step allocates and frees at once in the place of a work space is cuDNN's.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("memplan") is None:
    sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from compare import RESULTS, load, profile_of
from packing import unpack
from workloads import WORKLOADS, set_size

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch import cuda_convolution
from memplan.tracing.scratch.cuda_convolution_workspace import CudaConvolution, likely_bytes, most_bytes

DATA = RESULTS / "convolutions" / "2026-11-23-H100-torch2.11.0_cudnn9.19.json"
MARK = 1 << 50
"""Sizes from here on stand for calls."""
SAME_BYTES = 1024
"""Sizes that differ by less are the same: small parts of plans are left out."""
NEAR = 0.1, 1 << 20
"""Sizes that differ by less than this share, or by fewer bytes, are near."""
FIELDS = (
    "purpose",
    "batch",
    "inputs",
    "outputs",
    "groups",
    "source",
    "result",
    "kernel",
    "dense",
    "channels_last",
    "dtype",
)
"""What is kept of a convolution; its real work space comes last."""


def extract(name: str, content: dict[str, Any]) -> list[list[Any]]:
    """The distinct calls of a workload whose work space stands alone in the real stream."""
    from memplan.validate.align import align
    from memplan.validate.predict import predict_here

    calls: list[CudaConvolution] = []

    def marked(convolution: CudaConvolution, device: DeviceTraits) -> int:
        del device
        calls.append(convolution)
        return MARK + len(calls) - 1

    workload = next(each for each in WORKLOADS if each.name == name)
    with (
        mock.patch.object(cuda_convolution, "likely_bytes", marked),
        mock.patch.object(cuda_convolution, "most_bytes", return_value=0),
    ):
        predicted = predict_here(workload.spec(), profile_of(content), steps=2).stream
    real = unpack(content["workloads"][name]["stream"])
    ours = predicted.sizes[predicted.marks[0] : predicted.marks[1]]
    theirs = real.sizes[real.marks[0] : real.marks[1]]
    plain = [size for size in ours if abs(size) < MARK]
    partner = {
        block.i + step: block.j + step for block in align(plain, theirs) for step in range(block.length)
    }  # fmt: skip
    found = {}
    position = 0
    for size in ours:
        if size >= MARK and position - 1 in partner and position in partner:
            inside = list(theirs[partner[position - 1] + 1 : partner[position]])
            if not inside or (len(inside) == 2 and inside[0] == -inside[1] > 0):
                found[calls[size - MARK]] = inside[0] if inside else 0
        position += abs(size) < MARK
    return [[*(_plain(getattr(call, name)) for name in FIELDS), taken] for call, taken in found.items()]


def _plain(value: Any) -> Any:
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def convolution_of(row: Sequence[Any]) -> CudaConvolution:
    """The convolution of a row."""
    fields = dict(zip(FIELDS, row, strict=False))
    shapes = {name: tuple(fields[name]) for name in ("source", "result", "kernel")}
    return CudaConvolution(**{**fields, **shapes, "dtype": getattr(torch, fields["dtype"])})


def kept() -> Iterator[tuple[str, CudaConvolution, int]]:
    """Each call in DATA: its workload, the convolution, and the work space that it took."""
    for name, rows in json.loads(DATA.read_text(encoding="utf-8"))["calls"].items():
        for row in rows:
            yield name, convolution_of(row), row[-1]


def device() -> DeviceTraits:
    """The device of DATA."""
    return DeviceTraits(kind="cuda", capability=(9, 0), sm_count=132)


def is_same(likely: int, taken: int) -> bool:
    """Are two sizes the same but for small parts?"""
    return abs(likely - taken) < SAME_BYTES


def is_near(likely: int, taken: int) -> bool:
    """Are two sizes much the same?"""
    return abs(likely - taken) <= max(NEAR[0] * taken, NEAR[1])


def main() -> None:
    """Print a table, or write DATA anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extract", nargs="+", metavar="NAME")
    options = parser.parse_args()
    if options.extract:
        set_size(tiny=False)
        path = next(RESULTS.glob("*.json"))
        content = load(path)
        calls = {name: extract(name, content) for name in options.extract}
        lines = [f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in calls.items()]
        head = json.dumps({"source": path.name, "fields": [*FIELDS, "taken"]})[:-1]
        DATA.parent.mkdir(exist_ok=True)
        DATA.write_text(head + ', "calls": {\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for name, convolution, taken in kept():
        sizes = likely_bytes(convolution, device()), most_bytes(convolution, device()), taken
        rows.setdefault(name, []).append(sizes)
    print(f"{'workload':<30}{'calls':>7}{'same':>7}{'near':>7}{'beyond the most':>17}")
    for name, sizes in rows.items():
        same = sum(is_same(likely, taken) for likely, _, taken in sizes)
        near = sum(is_near(likely, taken) for likely, _, taken in sizes)
        beyond = sum(taken > max(likely, most) for likely, most, taken in sizes)
        print(f"{name:<30}{len(sizes):>7}{same:>7}{near:>7}{beyond:>17}")


if __name__ == "__main__":
    main()
