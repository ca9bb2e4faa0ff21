"""What a program saves with ``torch.save`` and loads again before it has trained."""

import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from memplan.measure.records import Estimate
from memplan.tracing.script.sharded_checkpoints import NOT_LOADED, NOT_SAVED

PROGRAM = """
import io
import torch
from net import build

model = build().to("cuda")
model.tied = model[0].weight
optimizer = torch.optim.Adam(model.parameters())
held = []
{load}
for step in range(100):
    optimizer.zero_grad()
    model(torch.randn(32, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
STATE = {
    "nothing": "",
    "a path": """
torch.save({"model": model.state_dict(), "epoch": 3}, "first.pt")
state = torch.load("first.pt", map_location="cpu", weights_only=True)
assert state["epoch"] == 3 and state["model"]["0.weight"].shape == (256, 64)
assert state["model"]["0.weight"].device.type == "cpu"
model.load_state_dict(state["model"])
""",
    "memory": """
file = io.BytesIO()
torch.save((model.state_dict(), optimizer.state_dict()), file)
file.seek(0)
weights, steps = torch.load(file, map_location=lambda storage, _: storage)
model.load_state_dict(weights)
optimizer.load_state_dict(steps)
""",
}
DISTRIBUTED = """
import torch.distributed.checkpoint as dcp

for save in (dcp.save, dcp.async_save):
    answer = save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id="steps/0")
answer.result()
dcp.load({"model": model.state_dict()}, checkpoint_id="steps/0")
"""
ON_THE_DEVICE = """
torch.save({where}, "first.pt")
loaded = torch.load("first.pt", weights_only=False)
held.append(loaded)
"""
COPIED = "import copy\nheld.append(copy.deepcopy({where}))\n"


@pytest.mark.parametrize("load", [STATE["a path"], STATE["memory"]])
def test_what_is_loaded_on_the_host_takes_nothing_of_the_device(load: str, estimated: Callable[..., Estimate]) -> None:
    plain, loaded = (estimated(PROGRAM.format(load=each)) for each in (STATE["nothing"], load))
    assert loaded.peak.requested_bytes == plain.peak.requested_bytes


def test_distributed_checkpoints_are_neither_written_nor_read(estimated: Callable[..., Estimate], folder: Path) -> None:
    plain, saving = (estimated(PROGRAM.format(load=load)) for load in ("", DISTRIBUTED))
    assert saving.peak.device_bytes == plain.peak.device_bytes
    assert {NOT_SAVED, NOT_LOADED} <= set(saving.assumptions)
    assert not (folder / "steps").exists()


@pytest.mark.parametrize("where", ["model", "model.state_dict()", "model[0].weight.detach()[:2]"])
def test_what_is_loaded_where_it_lay_takes_as_much_as_a_copy(where: str, estimated: Callable[..., Estimate]) -> None:
    copied, loaded = (estimated(PROGRAM.format(load=each.format(where=where))) for each in (COPIED, ON_THE_DEVICE))
    assert loaded.peak.requested_bytes == copied.peak.requested_bytes


def test_a_file_of_torch_itself_is_read_as_ever(estimated: Callable[..., Estimate], folder) -> None:
    torch.save({"rows": torch.arange(6000).float()}, folder / "data.pt")
    read = 'rows = torch.load("data.pt")["rows"]\nassert rows.shape == (6000,)\n'
    assert estimated(PROGRAM.format(load=read)).repeats


def test_a_foreign_file_that_says_it_is_memplans_own_runs_nothing(estimated: Callable[..., Estimate], folder) -> None:
    (folder / "hostile.pt").write_bytes(b"saved by memplan\n" + pickle.dumps(Fraction(1, 2)))
    read = """
loaded = None
try:
    loaded = torch.load("hostile.pt")
except Exception:
    pass
assert loaded is None
"""
    assert estimated(PROGRAM.format(load=read)).repeats
