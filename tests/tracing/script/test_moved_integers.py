"""An integer that a program reads from the device: it asks for one that decides, and goes on where none does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.assumed import AssumedInteger
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate

LINE = 9
PROGRAM = """
import torch
from net import build

model = build().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
lengths = torch.empty(32, dtype=torch.int64, device="cuda")
for step in range(1000):
    number = {read}
    {use}
    loss = model(torch.randn(rows, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ITEM, WHOLE = "lengths.max().item()", "int(lengths.max()) // 1"
DECIDES = {
    "a shape": "rows = number",
    "a slice": "rows = len([*range(200)][: number])",
    "a slice of a tensor": "rows = torch.zeros(200, device='cuda')[:number].shape[0]",
    "a loop": "rows = 4\n    kept = [torch.zeros(1000, device='cuda') for _ in range(number)]",
    "one-hot classes": "rows = torch.nn.functional.one_hot(lengths % 1, number + 1).shape[1]",
    "a repetition": "rows = torch.zeros(1, 1, device='cuda').repeat(number, 1).shape[0]",
}
DECIDES_NOTHING = {
    "logs": "rows = 8\n    print(f'{number:5d}')",
    "selects": "rows = (8, 8)[number % 2]",
    "selects one of few": "rows = {1: 8, 0: 8}[number]",
    "counts": "rows = 8\n    correct = number / 100",
    "fills": "rows = 8\n    lengths[0] = number",
}


@pytest.mark.parametrize("use", DECIDES.values(), ids=DECIDES)
@pytest.mark.parametrize("read", [ITEM, WHOLE], ids=["item", "int"])
def test_an_integer_that_decides_is_asked_for_and_taken_as_given(
    read: str, use: str, folder: Path, estimated: Callable[..., Estimate]
) -> None:
    with pytest.raises(EstimateError) as caught:
        estimated(PROGRAM.format(read=read, use=use))
    assert caught.value.where == f"train.py:{LINE}"
    assert f"--assume item@train.py:{LINE}=N" in (caught.value.hint or "")
    job = JobSpec(
        target=ScriptTarget(path=Path("train.py")), assume=(AssumedInteger(place=f"train.py:{LINE}", number=7),)
    )
    [given] = estimate_here(job, [load_profile("h100-80g")], advice=False)
    assert f"the integer read at train.py:{LINE} is 7, as given" in given.assumptions
    expected = estimated(PROGRAM.format(read="7", use=use)).peak
    assert (given.peak.requested_bytes, given.peak.high_bytes) == (expected.requested_bytes, expected.high_bytes)


@pytest.mark.parametrize("use", DECIDES_NOTHING.values(), ids=DECIDES_NOTHING)
def test_an_integer_that_decides_nothing_is_named(use: str, estimated: Callable[..., Estimate]) -> None:
    read = estimated(PROGRAM.format(read=ITEM, use=use))
    assert f"the integer read at train.py:{LINE} is taken to be 1" in read.assumptions
    assert not [phrase for phrase in read.not_modelled if "integer" in phrase]
    expected = estimated(PROGRAM.format(read="1", use=use)).peak
    assert (read.peak.requested_bytes, read.peak.high_bytes) == (expected.requested_bytes, expected.high_bytes)


def test_a_count_of_what_a_mask_selects_is_between_nothing_and_all(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(read="int((lengths > 0).sum())", use="rows = number + 1")
    counted, most = estimated(text), estimated(text.replace("number + 1", "33"))
    assert counted.peak.high_bytes >= most.peak.reserved_bytes


def test_an_integer_for_a_line_that_reads_none_is_refused(folder: Path, estimated: Callable[..., Estimate]) -> None:
    estimated(PROGRAM.format(read="3", use="rows = number"))
    job = JobSpec(target=ScriptTarget(path=Path("train.py")), assume=(AssumedInteger(place="train.py:10", number=7),))
    with pytest.raises(UsageError, match=r"reads no integer at train\.py:10"):
        estimate_here(job, [load_profile("h100-80g")], advice=False)


def test_of_several_integers_those_that_decide_are_asked_for(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(
        read=ITEM, use="logged = lengths.min().item(); rows = number\n    last = lengths.min().item()"
    )
    with pytest.raises(EstimateError) as caught:
        estimated(text)
    assert caught.value.where == f"train.py:{LINE}"


def test_what_a_library_makes_once_is_not_laid_to_an_integer(
    estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colorsys.MADE", [], raising=False)
    made = "colorsys.MADE.append(torch.zeros(5000, device='cuda').sum())"
    once = f"rows = 8\n    import colorsys\n    colorsys.MADE or {made}"
    read = estimated(PROGRAM.format(read=ITEM, use=once))
    assert f"the integer read at train.py:{LINE} is taken to be 1" in read.assumptions
    monkeypatch.setattr("colorsys.MADE", [])
    with pytest.raises(EstimateError, match="decides how much memory"):
        estimated(PROGRAM.format(read=ITEM, use=once.replace("rows = 8", "rows = number")))
