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
