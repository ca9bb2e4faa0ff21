"""Nested tensors in the jagged layout: what the trace says beside what the CPU's allocator gave."""

import pytest
import torch
from torch import nn

from memplan.tracing.records import DeviceTraits
from tests.tracing.jobs import source, trace
from tests.tracing.real_memory import peak, real_allocations

LENGTHS, WIDTH = (10, 15, 25), 32


def sequences():
    return torch.nested.nested_tensor([torch.randn(length, WIDTH) for length in LENGTHS], layout=torch.jagged)


def joined():
    return torch.randn(sum(LENGTHS), WIDTH)


class Blocks(nn.Module):
    """Layers that work on sequences of any length, then on padded ones."""

    def __init__(self, ending):
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )
        self.ending = ending

    def forward(self, x):
        if not x.is_nested:
            x = torch.nested.nested_tensor_from_jagged(x, offsets=torch.tensor([0, 10, 25, x.shape[0]]))
        return self.ending(x + self.narrow(torch.relu(self.wide(self.norm(x)))))


ENDINGS = {
    "values": lambda x: x.values(),
    "padded": lambda x: x.to_padded_tensor(0.0),
    "dropped out": lambda x: torch.nn.functional.dropout(x).values(),
    "parts": lambda x: torch.cat([part.sum(0) for part in x.unbind()]),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("batch", [sequences, joined])
def test_nested_tensors_train(ending, batch):
    def model():
        return Blocks(ENDINGS[ending])

    def loss(output, _):
        return output.square().mean()

    def run():
        net = model()
        optimizer = torch.optim.AdamW(net.parameters())
        output = None
        for _ in range(2):
            output = net(batch())
            loss(output, None).backward()
            optimizer.step()
            optimizer.zero_grad()

    job = trace(source(model, lambda size: batch(), loss=loss))
    sizes = [
        job.storages[event.storage].nbytes * (1 if event.action == "alloc" else -1)
        for event in job.events[: job.steps[1].end_event]
    ]
    assert peak(sizes) == pytest.approx(peak(real_allocations(run)), rel=0.005)


def test_parts_of_a_nested_batch_lie_on_the_device():
    parts = source(lambda: Blocks(ENDINGS["values"]), lambda size: sequences(), loss=lambda output, _: output.sum())
    job = trace(parts, DeviceTraits(kind="cuda"))
    inputs = [storage.nbytes for storage in job.storages if storage.role == "input" and storage.place == "device"]
    assert sum(LENGTHS) * WIDTH * 4 in inputs
