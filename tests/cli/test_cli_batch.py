"""``memplan batch``: complaints all at once, exit codes, what reaches the search."""

from typing import Any

import pytest
import typer

from memplan.cli.app import main, typer_app
from memplan.plan.batch import compose
from memplan.plan.batch.records import BatchAnswer
from tests.cli.options import CACHE, ESTIMATE
from tests.report.example_batches import NOTHING, answer

BATCH = (ESTIMATE - {"--alloc-conf", "--fail-on"}) | {"--of", "--utilization", "--vary"}
BATCH |= {"--seq-len-dist", "--steps", "--seed"}


def test_options() -> None:
    command = typer.main.get_command(typer_app()).commands["batch"]
    assert {word for parameter in command.params for word in parameter.opts} == BATCH | CACHE


def test_everything_that_is_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "preset:gpt2", "--of", "colour", "--utilization", "wild"]) == 2
    errors = capsys.readouterr().err
    for word in ("--gpu", "colour", "wild"):
        assert word in errors


@pytest.mark.parametrize(("found", "code"), [(answer(), 0), (NOTHING, 3)])
def test_what_was_typed_reaches_the_search(monkeypatch: pytest.MonkeyPatch, found: BatchAnswer, code: int) -> None:
    asked: list[Any] = []

    def search(spec: Any, profiles: Any, **options: Any) -> tuple[BatchAnswer, ...]:
        asked.append(([profile.name for profile in profiles], options["variable"], options["utilization"]))
        return (answer(), found)

    monkeypatch.setattr(compose, "largest_batches", search)
    typed = "--gpu rtx-4090 --gpu t4 --of seq-len --utilization balanced"
    assert main(["batch", "preset:gpt2", *typed.split()]) == code
    assert asked == [(["rtx-4090", "t4"], "seq_len", "balanced")]
