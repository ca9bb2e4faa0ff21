"""Evaluations that repeat themselves are traced once, and need what they need when every one of them is traced."""

import contextlib
from collections.abc import Callable

import pytest

from memplan.measure.records import Estimate
from memplan.tracing.script.repeated_calls import RepeatedCalls

PROGRAM = """
import torch
from torch.nn import functional as F
from net import build

model = build().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
ran = 0
model[1].register_forward_hook(lambda *_: globals().update(ran=ran + 1))

@torch.no_grad()
def evaluate():
    model.eval()
    kept = []
    for _ in range({count}):
        x = torch.randn(1000, 64, device="cuda")
        kept.append({keeps})
    model.train()
    return torch.stack(kept)

{before}
for step in range(100):
    loss = model(torch.randn(64, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
KEEPS = ("model(x).mean()", "model(x)", "F.softmax(model(x), -1)", "model(x)[:1]")


@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize(("before", "after"), [("evaluate()", ""), ("", "evaluate()")], ids=["before", "in a step"])
def test_what_is_skipped_changes_nothing(
    before: str, after: str, keeps: str, estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PROGRAM.format(count=12, keeps=keeps, before=before, after=after)
    skipped = estimated(text)
    monkeypatch.setattr(RepeatedCalls, "skipping", lambda _: contextlib.nullcontext())
    traced = estimated(text)
    assert skipped.peak.requested_bytes == traced.peak.requested_bytes
    assert skipped.peak.reserved_bytes == traced.peak.reserved_bytes
    assert skipped.breakdown == traced.breakdown


def test_repeated_calls_do_not_run(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(count=50, keeps="model(x).mean()", before="evaluate()\nassert ran == 3, ran", after="")
    assert estimated(text).repeats


def test_calls_that_leave_something_behind_run(estimated: Callable[..., Estimate]) -> None:
    text = PROGRAM.format(count=10, keeps="model(x).mean()", before="evaluate()\nassert ran == 10, ran", after="")
    note = "kept_by_hook = []\nmodel[0].register_forward_hook(lambda *args: kept_by_hook.append(args[-1]))\n"
    assert estimated(text.replace("@torch.no_grad()", note + "@torch.no_grad()")).parameters


GROWS = """
class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
    def forward(self, x):
        global ran
        ran += 1
        hidden = self.inner(x)
        weights = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        return self.inner(weights @ hidden), {"last": hidden[:, -1:].clone(), "loss": None}

attends = Attends().to("cuda").eval()

@torch.no_grad()
def sample():
    text = torch.randn(2, 5, 64, device="cuda")
    for _ in range(120):
        text = torch.cat((text, attends(text[:, -100:])[1]["last"]), 1)
    return text
"""


@pytest.mark.parametrize(("before", "after"), [("sample()", ""), ("", "sample()")], ids=["before", "in a step"])
def test_samples_that_grow_take_what_they_take_when_each_is_traced(
    before: str, after: str, estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PROGRAM.format(count=0, keeps="0", before=GROWS + before, after=after)
    skipped = estimated(text + "    assert ran < 30 * (step + 1), ran\n")
    monkeypatch.setattr(RepeatedCalls, "skipping", lambda _: contextlib.nullcontext())
    traced = estimated(text)
    assert skipped.peak.requested_bytes == traced.peak.requested_bytes
    assert skipped.peak.reserved_bytes == traced.peak.reserved_bytes
    assert skipped.breakdown == traced.breakdown


def test_evaluations_in_autocast_contexts_of_their_own_do_not_run(estimated: Callable[..., Estimate]) -> None:
    evaluate = PROGRAM.replace("kept.append(", "with torch.autocast('cuda', torch.bfloat16):\n            kept.append(")
    before = "evaluate()\nassert ran == 3, ran"
    assert estimated(evaluate.format(count=50, keeps="model(x).mean()", before=before, after="")).repeats


def test_a_window_of_a_text_that_grows_is_the_same_call(estimated: Callable[..., Estimate]) -> None:
    grows = """text = torch.zeros(2, 64, device="cuda")
with torch.no_grad():
    for _ in range(20):
        text = torch.cat((text, model(text[:, -64:])[:, :1]), 1)
assert ran == 4, ran  # The first window is all of the text.
"""
    assert estimated(PROGRAM.format(count=0, keeps="0", before=grows, after="")).repeats
