"""Random integers that a program draws on the host have values there, and their extremes are in the interval."""

from collections.abc import Callable

import pytest

from memplan.measure.records import Estimate

PROGRAM = """
import torch
from net import build

model = build().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
text = torch.tensor(list(range(10_000)))
for step in range(1000):
    {batch}
    assert type(rows) is torch.Tensor
    loss = model(rows.float().to("cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OFFSETS = "rows = torch.stack([text[i:i + 64] for i in torch.randint(9_000, (32,))])"
LENGTHS = "rows = text[:64].repeat({read}, 1)"
READS = (
    "torch.randint(1, 1000, (1,)).item()",
    "torch.randint(1, 1000, (1,)).tolist()[0]",
    "torch.randint(1, 1000, (1,)).numpy()[0]",
    "len(torch.randint(0, 2, (999,)).nonzero()) or 1",
)


def test_offsets_of_a_batch_are_numbers(estimated: Callable[..., Estimate]) -> None:
    estimate = estimated(PROGRAM.format(batch=OFFSETS))
    assert estimate.repeats
    assert any("drawn anew by each trace" in sentence for sentence in estimate.assumptions)


@pytest.mark.parametrize("read", READS)
def test_the_interval_holds_the_longest_batch(read: str, estimated: Callable[..., Estimate]) -> None:
    drawn = estimated(PROGRAM.format(batch=LENGTHS.format(read=read)))
    longest = estimated(PROGRAM.format(batch=LENGTHS.format(read="998")))
    assert drawn.peak.high_bytes >= longest.peak.reserved_bytes


def test_each_trace_draws_alike(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(batch=LENGTHS.format(read=READS[0]))
    assert estimated(text).peak == estimated(text).peak


def test_the_seed_of_a_sampler_is_a_number(estimated: Callable[..., Estimate]) -> None:
    seeded = """
import torch
from net import build

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seed = int(torch.empty((), dtype=torch.int64).random_().item())
generator = torch.Generator().manual_seed(seed)
while True:
    rows = 4 + int(torch.randint(4, (1,), generator=generator))
    model(torch.randn(rows, 64)).square().mean().backward()
    optimizer.step()
"""
    assert not [each for each in estimated(seeded, gpu="cpu").assumptions if "integer read" in each]


def test_the_cpu_has_no_number(estimated: Callable[..., Estimate]) -> None:
    program = """
import torch
from net import build

device = torch.device("cpu", 1)
model = build().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    loss = (model(torch.randn(4, 64, device="cpu:0")) - torch.zeros(4, 10)).square().mean()
    loss.backward()
    optimizer.step()
"""
    plain = program.replace('("cpu", 1)', '("cpu")').replace("cpu:0", "cpu")
    found, expected = (estimated(text, gpu="cpu").peak.requested_bytes for text in (program, plain))
    assert found == expected
