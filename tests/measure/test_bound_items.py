"""Labels of a tuple are no input of the model, and the report says what is."""

import re
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure.document import ESTIMATE
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate, RecordedEstimate
from memplan.report.estimate.text import render
from memplan.report.redact import redacted

TARGET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)

    def forward(self, x{optional}):
        hidden = self.first(x).relu()
        {use}
        return self.second(hidden)

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.rand(batch_size, 1)

def loss(output, batch):
    return (output - batch[1]).square().mean()
"""
WEIGHTED = {"optional": ", edge_weight=None", "use": "hidden = hidden if edge_weight is None else hidden * edge_weight"}
PLAIN = {"optional": "", "use": ""}


def estimated(folder: Path, text: str, **options: object) -> Estimate:
    target = folder / "net.py"
    target.write_text(text)
    spec = JobSpec(target=parse_target(str(target)), batch_size=512, **options)
    (found,) = estimate_here(spec, [load_profile("cpu")])
    return found


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_what_the_loss_reads_moves_no_byte_of_the_model(tmp_path: Path, mode: str) -> None:
    with_labels = estimated(tmp_path, TARGET.format(**WEIGHTED), mode=mode)
    without = estimated(tmp_path, TARGET.format(**PLAIN), mode=mode)
    assert with_labels.peak.requested_bytes == without.peak.requested_bytes
    assert with_labels.provenance["forward.x"] == without.provenance["forward.x"] == "batch[0]"
    said = "forward() gets no edge_weight: the loss reads that item of the batch"
    assert said in with_labels.assumptions
    assert said not in without.assumptions


def test_what_the_loss_does_not_read_is_an_input(tmp_path: Path) -> None:
    text = TARGET.format(**WEIGHTED).replace("(output - batch[1])", "output")
    found = estimated(tmp_path, text)
    assert found.peak.requested_bytes > estimated(tmp_path, TARGET.format(**PLAIN)).peak.requested_bytes
    assert found.provenance["forward.edge_weight"] == "batch[1]"


def test_every_report_says_what_was_bound(tmp_path: Path) -> None:
    found = estimated(tmp_path, TARGET.format(**PLAIN))
    assert ESTIMATE.plain(found)["provenance"]["forward.x"] == "batch[0]"
    assert any("forward.x batch[0]" in line.plain for line in render([found]))
    hidden = redacted([RecordedEstimate(estimate=found, history=None)])[0].estimate
    (name,) = (name for name in hidden.provenance if name.startswith("forward."))
    assert re.fullmatch(r"forward\.m\d+", name)
    assert hidden.provenance[name] == "batch[0]"
