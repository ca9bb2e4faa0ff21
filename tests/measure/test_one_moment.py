"""Breakdown, fragmentation, map and curve tell of one and the same moment: the peak."""

from collections import Counter
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.local import record_here
from memplan.measure.records import RecordedEstimate
from memplan.replay.play import SAME_LEVEL

LATE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1100, 1100) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 1100)

def loss(output, batch):
    return output.square().mean()
"""
SETUP = (
    LATE
    + """
def model():
    net = Net().to("cuda")
    torch.empty(64 << 20, device="cuda")  # A moment of set-up that no step comes near.
    return net
"""
)
"""Its last segment is of set-up: steps find all that they need in it."""


def recorded(folder: Path, text: str, *, conf: str = "", **options: object) -> RecordedEstimate:
    target = folder / "net.py"
    target.write_text(text)
    spec = JobSpec(target=parse_target(str(target)), **options)
    (found,) = record_here(spec, [load_profile("t4")], alloc_conf=conf, whole=False)
    return found


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
@pytest.mark.parametrize(
    ("text", "options"),
    [
        (LATE, {"batch_size": 700}),
        (LATE, {"batch_size": 3000, "optimizer": "sgd"}),
        (LATE, {"batch_size": 300, "grad_accum": 2}),
        (LATE, {"batch_size": 900, "mode": "inference"}),
        (SETUP, {"batch_size": 100, "mode": "inference"}),
    ],
    ids=["train", "sgd", "accumulated", "inference", "set-up"],
)
def test_every_part_of_a_report_tells_of_the_peak(tmp_path: Path, text: str, options: dict, conf: str) -> None:
    found = recorded(tmp_path, text, conf=conf, **options)
    estimate, digest = found.estimate, found.digest
    peak, parts, waste = estimate.peak, estimate.breakdown, estimate.fragmentation
    assert sum(parts.values()) == peak.device_bytes == peak.reserved_bytes + parts["context"]
    # Fragmentation in bytes is its two shares of what is reserved.
    share = waste.external + (1 - waste.external) * waste.internal
    assert share * peak.reserved_bytes == pytest.approx(parts["fragmentation"])
    # The allocator's map shows that very moment: the same bytes of every category, and the same holes.
    held, free, rounding = Counter(), 0, 0
    for block in (block for segment in digest.segments for block in segment.blocks):
        if block.holder < 0:
            free += block.nbytes
        else:
            held[digest.holders[block.holder].category] += block.requested
            rounding += block.nbytes - block.requested
    assert held == {name: size for name, size in parts.items() if size and name not in {"fragmentation", "context"}}
    # So does the curve, at the event that it calls the peak; a small last segment may come after it.
    at = digest.curve.events.index(digest.peak_event)
    free += peak.reserved_bytes - digest.curve.reserved[at]
    assert peak.reserved_bytes / SAME_LEVEL <= digest.curve.reserved[at] <= peak.reserved_bytes
    assert free + rounding == parts["fragmentation"]
    assert free == pytest.approx(waste.external * peak.reserved_bytes)
    assert digest.curve.allocated[at] == peak.reserved_bytes - free
    # And so do the owners.
    owned = Counter()
    for owner in estimate.owners:
        owned[owner.category] += owner.bytes
    assert owned == held


def test_a_peak_of_set_up_names_no_op_of_a_step(tmp_path: Path) -> None:
    answer = recorded(tmp_path, SETUP, batch_size=8).estimate
    peak = answer.peak
    assert (peak.phase, peak.op, peak.module, peak.source) == ("setup", "", "", "")
    # What set-up frees itself is no buffer that it left to the steps.
    assert (answer.breakdown["temporary"], answer.breakdown["buffer"]) == (256 << 20, 0)
