"""What steps draw by ``random`` and ``numpy.random``: told, and held by the interval, where it decides what they do."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from memplan.measure.records import Estimate
from memplan.tracing.moved_draws import DECIDING

PROGRAM = """
import random
import numpy as np
import torch
from net import build
{before}
rows, extra, queue = 8, False, [1, 2, 3, 4]
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    {drawn}
    batch = torch.randn(rows, 64)
    loss = model(batch).square().mean()
    if extra:
        loss = loss + model(batch.repeat(50, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DECIDE = {
    "an integer": ("rows = 1000 * random.randint(1, 4)", "rows = 1000", "rows = 4000"),
    "a step of a range": ("rows = random.randrange(1000, 5000, 500)", "rows = 1000", "rows = 4500"),
    "one of a few sizes": ("rows = random.choice([1500, 4000, 1000, 2000])", "rows = 1000", "rows = 4000"),
    "a chance": ("extra = random.random() < 0.02", "extra = False", "extra = True"),
    "a rare chance": ("extra = random.uniform(0, 10) > 9.9", "extra = False", "extra = True"),
    "an array of one chance": ("extra = np.random.rand(1) < 0.02", "extra = False", "extra = True"),
    "an integer of NumPy": ("rows = 1000 * np.random.randint(1, 5)", "rows = 1000", "rows = 4000"),
    "a layer of many": (
        "rows = 100 * sum(random.random() > 0.2 for layer in range(40)) + 1", "rows = 1", "rows = 4001",
    ),
}  # fmt: skip
DATA = {
    "Python's": "data = [random.random() for _ in range(300)], random.sample(queue, 2), random.choice(queue)",
    "NumPy's": "data = np.random.randn(4, 64), np.random.permutation(9), np.random.randint(0, 5)",
    "drawn until it fits": "while random.randint(0, 3) != 2: pass",
}


@pytest.mark.parametrize(("drawn", "least", "most"), DECIDE.values(), ids=DECIDE)
def test_the_interval_holds_the_least_and_the_most_of_what_may_be_drawn(
    drawn: str, least: str, most: str, estimated: Callable[..., Estimate]
) -> None:
    as_it_is = estimated(PROGRAM.format(before="", drawn=drawn), gpu="cpu")
    low, high = (estimated(PROGRAM.format(before="", drawn=each), gpu="cpu").peak for each in (least, most))
    assert DECIDING in as_it_is.assumptions
    assert as_it_is.peak.high_bytes >= high.high_bytes > low.high_bytes
    assert as_it_is.peak.low_bytes <= high.low_bytes


@pytest.mark.parametrize("drawn", DATA.values(), ids=DATA)
def test_draws_of_data_alone_are_nothing_to_tell(drawn: str, estimated: Callable[..., Estimate]) -> None:
    as_it_is, plain = (estimated(PROGRAM.format(before="", drawn=each), gpu="cpu") for each in (drawn, "pass"))
    assert as_it_is.assumptions == plain.assumptions
    assert as_it_is.peak == plain.peak


@pytest.mark.parametrize(
    ("before", "drawn"),
    [
        ("random.seed(7)", "rows = 1000 * random.randint(1, 4)"),
        ("np.random.seed(7)", "rows = 1000 * np.random.randint(1, 5)"),
    ],
)
def test_a_program_with_a_seed_of_its_own_draws_as_it_will(
    before: str, drawn: str, estimated: Callable[..., Estimate]
) -> None:
    generator, legacy = random.Random(7), np.random.RandomState(7)
    draw = (lambda: generator.randint(1, 4)) if before.startswith("random") else (lambda: legacy.randint(1, 5))
    rows = [1000 * draw() for _ in range(20)]
    as_it_is = estimated(PROGRAM.format(before=before, drawn=drawn), gpu="cpu")
    written = estimated(PROGRAM.format(before="", drawn=f"rows = {rows}[step]"), gpu="cpu")
    assert DECIDING not in as_it_is.assumptions
    assert as_it_is.peak == written.peak


def test_what_draws_outside_of_traces_goes_on_undisturbed(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(before="", drawn="rows = 1000 * random.randint(1, 4) + np.random.randint(9)")
    random.seed(3)
    np.random.seed(3)
    one = estimated(text, gpu="cpu")
    drawn = random.random(), np.random.rand()
    another = estimated(text, gpu="cpu")
    assert drawn == (random.Random(3).random(), np.random.RandomState(3).rand())
    assert one.peak == another.peak
