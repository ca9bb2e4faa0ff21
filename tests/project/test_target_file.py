"""Target files made from scripts, and what an estimate of them says."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.project.target_file import target_file

SCRIPT = """
import argparse
import unheard_of_format
import torch
from torch import nn, optim

class OwnNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(12, width)

    def forward(self, x):
        return self.fc(x)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-w", "--net-width", type=int, default=5)
    parser.add_argument("--momentum", default=0.9)
    args = parser.parse_args()
    criterion = nn.CrossEntropyLoss().cuda()
    net = OwnNet(args.net_width).to("cuda")
    net = nn.DataParallel(net)
    optimizer = optim.SGD(net.parameters(), lr=rate, momentum=args.momentum)
    for x, y in unheard_of_format.load():
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


def test_model_optimizer_and_loss_are_the_scripts_own(tmp_path: Path) -> None:
    script = tmp_path / "train_unheard.py"
    script.write_text(SCRIPT)
    text = target_file(script)
    assert "from train_unheard import OwnNet" in text
    assert "return OwnNet(5)" in text
    assert "# complete: rate\n    return optim.SGD(parameters, lr=rate, momentum=0.9)" in text
    assert "#     return nn.CrossEntropyLoss()(output, batch[1])" in text
    made = tmp_path / "step.py"
    made.write_text(text.replace("lr=rate", "lr=0.1"))
    [estimate] = estimate_here(JobSpec(target=FileTarget(path=made)), [load_profile("cpu")])
    assert estimate.parameters == 65
    assert estimate.options["optimizer"] == "own SGD"


def test_a_script_without_an_optimizer_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('nothing')\n")
    with pytest.raises(UsageError, match="makes no optimizer"):
        target_file(script)
