"""What a program has real values of, from NumPy or a loader: parameters made of it, lengths read from it."""

from collections.abc import Callable

import pytest

from memplan.measure.records import Estimate

PARAMETERS = """
import numpy as np, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = {words}
        self.scale = nn.Parameter({scale})

    def forward(self, x):
        return (self.words(x) * self.scale).mean()

net = Net()
early = torch.optim.Adam(net.parameters())
net = net.to("cuda")
optimizer = {optimizer}
for _ in range(5):
    optimizer.zero_grad()
    net(torch.randint(5000, (32, 50), device="cuda")).backward()
    optimizer.step()
"""
ORDINARY = {"words": "nn.Embedding(5000, 100)", "scale": "torch.ones(())"}
OWN = {
    "words": "nn.Embedding.from_pretrained(torch.from_numpy(np.zeros((5000, 100), np.float32)), freeze=False)",
    "scale": "torch.tensor(np.log(1 / 0.07), dtype=torch.float32)",
}


@pytest.mark.parametrize("optimizer", ["early", "torch.optim.Adam(net.parameters())"])
def test_parameters_made_of_data_are_like_others(optimizer: str, estimated: Callable[..., Estimate]) -> None:
    own, ordinary = (estimated(PARAMETERS.format(**each, optimizer=optimizer)) for each in (OWN, ORDINARY))
    assert own.peak.requested_bytes == ordinary.peak.requested_bytes
    assert own.breakdown == ordinary.breakdown


LENGTHS = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader

def collate(rows):
    return torch.zeros(4, 40, 8), torch.tensor([{lengths}])

net = nn.LSTM(8, 16, batch_first=True).to("cuda")
optimizer = torch.optim.Adam(net.parameters())
for x, lengths in DataLoader(range(32), 4, collate_fn=collate):
    packed = pack_padded_sequence(x.to("cuda"), lengths, batch_first=True)
    assert packed.batch_sizes.device.type == "cpu"
    assert packed.batch_sizes.tolist() == [sum(n > step for n in [{lengths}]) for step in range(max([{lengths}]))]
    more = torch.zeros(2, packed.batch_sizes[0], 3, device="cuda")
    assert more.shape[1] == 4
    net(packed)[0].data.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_lengths_that_a_loader_hands_over_are_known(estimated: Callable[..., Estimate]) -> None:
    short, long = (estimated(LENGTHS.format(lengths=lengths)) for lengths in ("9, 7, 3, 2", "40, 40, 40, 40"))
    assert short.peak.requested_bytes < long.peak.requested_bytes
    assert not [said for said in short.assumptions if "integer" in said or "padding" in said]


LABELS = """
import torch
from net import build
from torch.utils.data import DataLoader

def checked(labels):
    if len(torch.unique(labels)) > 10:
        raise RuntimeError("more labels than classes")

model = build().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows, labels in DataLoader([(torch.zeros(64), label % 10) for label in range(640)], 64):
    labels = labels.to("cuda")
    checked(labels)
    torch.nn.functional.cross_entropy(model(rows.to("cuda")), labels).backward()
    optimizer.step()
"""


def test_a_check_of_how_many_labels_there_are_passes(estimated: Callable[..., Estimate]) -> None:
    assert estimated(LABELS).repeats


TRACED = """
import torch
from net import build

model = build().to("cuda")
traced = torch.jit.trace(model, torch.randn(2, 64, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    traced(torch.randn(32, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_traced_module_runs_as_python(estimated: Callable[..., Estimate]) -> None:
    assert estimated(TRACED).repeats


INSIDE = """
import torch
from contextlib import contextmanager
from torch import nn

@contextmanager
def without_weights():
    register = nn.Module.register_parameter
    def registered(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None:
            kind, attributes = type(parameter), parameter.__dict__
            module._parameters[name] = kind(parameter.to("meta"), **attributes)
    nn.Module.register_parameter = registered
    try:
        yield
    finally:
        nn.Module.register_parameter = register

with {place}:
    net = nn.Sequential(nn.Linear(300, 500), nn.ReLU(), nn.Linear(500, 10))
{after}
optimizer = torch.optim.Adam(net.parameters())
for _ in range(5):
    optimizer.zero_grad()
    net(torch.randn(32, 300, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("place", "after"),
    [
        ("without_weights()", "net.to_empty(device='cuda')"),
        (
            "torch.device('meta')",
            "torch.__future__.set_swap_module_params_on_conversion(True)\nnet.to_empty(device='cuda')",
        ),
    ],
)
def test_models_made_without_weights_get_them_later(place: str, after: str, estimated: Callable[..., Estimate]) -> None:
    """As accelerate's ``init_empty_weights`` makes parameters, and as torchtitan once moved them."""
    late, ordinary = (
        estimated(INSIDE.format(place=where, after=then))
        for where, then in ((place, after), ("torch.device('cuda')", ""))
    )
    assert late.peak.requested_bytes == ordinary.peak.requested_bytes
    assert late.trainable_parameters == ordinary.trainable_parameters == 300 * 500 + 500 + 500 * 10 + 10


ENSEMBLE = """
import copy, torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

nets = [nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10)).cuda() for _ in range(5)]
parameters, buffers = stack_module_state(nets)
skeleton = copy.deepcopy(nets[0]).to("meta")
assert skeleton[0].weight.is_meta and nets[0][0].weight.is_cuda
optimizer = torch.optim.Adam(parameters.values())
for _ in range(5):
    optimizer.zero_grad()
    call = vmap(lambda own, kept, x: functional_call(skeleton, (own, kept), (x,)), in_dims=(0, 0, None))
    call(parameters, buffers, torch.randn(128, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""


def test_an_ensemble_shares_the_skeleton_of_its_models(estimated: Callable[..., Estimate]) -> None:
    """As PyTorch's tutorial of ensembles makes them: the five nets stay beside their stacked parameters."""
    one = 4 * (64 * 256 + 256 + 256 * 10 + 10)
    breakdown = estimated(ENSEMBLE).breakdown
    assert breakdown["parameter"] == 5 * one
    assert breakdown["optimizer_state"] == 2 * 5 * one
    assert breakdown["buffer"] == 5 * one
