"""Causes beyond those of the twenty-four programs, the table that explains them, and the text."""

import functools
import json
import queue
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from memplan.findings.records import NOWHERE
from memplan.findings.rules import LEAKS
from memplan.runtime.leaks.detector import GRACE, LeakDetector
from memplan.runtime.leaks.records import Chain, Growing, Link, Outcome, Site
from memplan.runtime.leaks.report import LeakReport, document, render
from memplan.runtime.meters import cpu


@pytest.fixture(autouse=True)
def _counted() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.scaled = x * 3
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class SummaryWriter:
    """As TensorBoard's, which hands what it gets to a queue."""

    def __init__(self) -> None:
        self.pending: list[torch.Tensor] = []

    def add_scalar(self, value: torch.Tensor) -> None:
        self.pending.append(value)


def in_a_class() -> Callable[[], object]:
    class Shared:
        made: ClassVar[list[torch.Tensor]] = []

    return lambda: Shared.made.append(torch.zeros(10))


def on_a_context() -> Callable[[], object]:
    weight, kept = torch.ones(10, requires_grad=True), []
    return lambda: kept.append(Doubled.apply(weight))


def modules_added() -> Callable[[], object]:
    model = nn.ModuleList()
    return lambda: model.append(nn.Linear(4, 4))


def callbacks_added() -> Callable[[], object]:
    callbacks: list[Callable[[], Any]] = []

    def step() -> None:
        inner = torch.zeros(10)
        callbacks.append(lambda: inner)

    return step


def queue_filled() -> Callable[[], object]:
    waiting: queue.Queue[torch.Tensor] = queue.Queue()
    return lambda: waiting.put(torch.zeros(10))


def function_cached() -> Callable[[], object]:
    @functools.cache
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return lambda: doubled(torch.zeros(10))


def values_written() -> Callable[[], object]:
    writer = SummaryWriter()
    return lambda: writer.add_scalar(torch.zeros(10))


def report_of(step: Callable[[], object]) -> LeakReport:
    with LeakDetector("cpu", patience=30) as detector:
        for _ in range(30 + 5 + GRACE):
            step()
            detector.step()
    [report] = detector.reports
    return report


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (in_a_class, {"ML011"}),
        (on_a_context, {"ML012", "ML001"}),  # What the context has, and the output itself.
        pytest.param(modules_added, {"ML013"}, marks=pytest.mark.slow),
        pytest.param(callbacks_added, {"ML014"}, marks=pytest.mark.slow),
        pytest.param(queue_filled, {"ML015"}, marks=pytest.mark.slow),
        pytest.param(function_cached, {"ML018"}, marks=pytest.mark.slow),
        pytest.param(values_written, {"ML009"}, marks=pytest.mark.slow),
    ],
)
def test_the_cause_is_named(make: Callable[[], Callable[[], object]], codes: set[str]) -> None:
    report = report_of(make())
    assert report.outcome is Outcome.LEAK
    assert set(report.codes) == codes
    check_text(report)


def check_text(report: LeakReport) -> None:
    text = render(report)
    assert str(report) == text
    for line in text.splitlines():
        assert len(line) <= 80 or " " not in line.strip()
    for code in report.codes:
        assert LEAKS[code].title in text
    found = json.loads(json.dumps(document(report)))
    assert found["outcome"] == report.outcome
    assert found["codes"] == list(report.codes)
    assert [site["chain"]["path"] for site in found["sites"]] == [str(site.chain) for site in report.sites]
    assert sum(each["bytes"] for each in found["classes"]) == sum(site.nbytes for site in report.sites)


def test_a_cause_is_a_finding_where_it_is_born_with_what_keeps_it() -> None:
    chain = Chain(links=(Link(kind="global", name="history", holder="list"),), rooted=True)
    sites = tuple(
        Site(
            place=("train.py", line, "step"), op="aten.add", storages=5, steps=5, nbytes=5120, bytes_per_step=1024.0,
            shape=(256,), dtype="float32", chain=chain, code=code, collected=False, leaks=leaks,
        )
        for line, code, leaks in ((3, "ML001", True), (7, "ML004", False), (9, "ML001", True))
    )  # fmt: skip
    report = LeakReport(
        outcome=Outcome.LEAK, step=115, source="cpu", growth=None, count=None, sites=sites, classes=(),
        sampled_steps=5, explained=3072.0, seconds=0.1,
    )  # fmt: skip
    [finding] = report.findings
    assert (finding.code, finding.place.file, finding.place.line) == ("ML001", "train.py", 3)
    assert finding.evidence == ("kept by history",)
    assert "2.00 KiB a step" in finding.message


def test_the_text_of_what_nothing_explains() -> None:
    growth = Growing(rate=2048.0, low=2000.0, high=2100.0, since=3, p_value=1e-9)
    report = LeakReport(
        outcome=Outcome.LEAK, step=115, source="cuda:0", growth=growth, count=None, sites=(), classes=(),
        sampled_steps=5, explained=0.0, seconds=0.1,
    )  # fmt: skip
    assert report.codes == ("ML016",)
    [finding] = report.findings
    assert (finding.severity, finding.place, finding.evidence) == ("error", NOWHERE, ())
    assert finding.fix == LEAKS["ML016"].remedy
    assert report.unexplained == 2048
    assert "unknown  2.00 KiB a step that nothing seen explains" in render(report)
    check_text(report)


def test_the_table_is_keyed_by_code_and_says_what_to_do() -> None:
    assert list(LEAKS) == [f"ML{number:03}" for number in range(1, len(LEAKS) + 1)]
    for code, rule in LEAKS.items():
        assert rule.code == code
        assert rule.meaning.endswith(".")
        assert rule.remedy.endswith(".")
