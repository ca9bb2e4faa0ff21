"""Programs that begin with weights of a file that is not there."""

from collections.abc import Callable

import pytest

from memplan.errors import EstimateError
from memplan.measure.records import Estimate

PROGRAM = """
import torch
from net import build

model = build()
{load}
model = model.to("cuda")
model.tied = model[0].weight
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    optimizer.zero_grad()
    model(torch.randn(32, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
OF_THE_MODEL = (64 * 256 + 256 + 256 * 10 + 10) * 4
RENAMED = """
state = torch.load("weights.pth", map_location="cpu")["model"]
model.load_state_dict({name.replace("module.", ""): value for name, value in state.items()})
"""
PERHAPS = """
try:
    state = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    first = state["epoch"] + 1
except FileNotFoundError:
    first = 0
assert first == 0
"""


DEFAULTS = """
state = torch.load("last.pt", map_location="cpu")
model.load_state_dict(state.get("model", {}))
assert list(range(state.get("epoch", 0), 2)) == [0, 1] and state.pop("best", 1.0) == 1.0
"""


@pytest.mark.parametrize(
    "load",
    [
        'model.load_state_dict(torch.load("weights.pth", map_location="cpu"), strict=False)',
        'model.load_state_dict(torch.load("weights.pth", map_location=lambda storage, _: storage).get("state_dict"))',
        'model.load_state_dict(torch.load("weights.pth"))',
        RENAMED,
        PERHAPS,
        DEFAULTS,
    ],
)
def test_a_model_keeps_what_it_was_built_with(load: str, estimated: Callable[..., Estimate]) -> None:
    built, loaded = estimated(PROGRAM.format(load="")), estimated(PROGRAM.format(load=load))
    assert loaded.peak.requested_bytes == built.peak.requested_bytes
    assert any("is not there: the model keeps" in sentence for sentence in loaded.assumptions)


@pytest.mark.parametrize("place", ["", 'map_location="cuda"'])
def test_a_state_on_the_device_that_is_held_takes_as_much_as_the_model(
    place: str, estimated: Callable[..., Estimate]
) -> None:
    load = f'held = torch.load("weights.pth", {place})["model"]\nmodel.load_state_dict(held)'
    built, loaded = estimated(PROGRAM.format(load="")), estimated(PROGRAM.format(load=load))
    assert loaded.peak.requested_bytes - built.peak.requested_bytes == OF_THE_MODEL


@pytest.mark.parametrize(
    "load",
    [
        'model = torch.load("all.pt").to("cuda")',
        'rows = len(torch.load("all.pt"))',
        'rows = torch.load("all.pt")["rows"][:10].float()',
        'rows = torch.utils.data.TensorDataset(torch.load("all.pt")["rows"])',
        'for row in torch.load("all.pt"): model(row)',
    ],
)
def test_other_files_are_missed_as_ever(load: str, estimated: Callable[..., Estimate]) -> None:
    with pytest.raises(EstimateError, match=r"No such file.*all\.pt"):
        estimated(PROGRAM.format(load=load))
