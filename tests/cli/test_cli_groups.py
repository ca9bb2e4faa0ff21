"""Groups of options: what Typer sees of a command that takes them, and what the command gets."""

import inspect
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer

from memplan.cli.groups import JOB_PARAMETERS, ExportOptions, JobOptions, ReportOptions, spread
from memplan.job.options import OPTIONS
from memplan.job.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Two options."""

    width: Annotated[int, typer.Option("--width", help="How wide.")] = 3
    height: Annotated[int, typer.Option("--height", help="How high.")] = 4


def played(arguments: list[str]) -> tuple[str, Size, bool]:
    """What a command gets of its command line."""
    calls: list[tuple[str, Size, bool]] = []

    @spread
    def draw(
        what: Annotated[str, typer.Argument()], *, size: Size, loud: Annotated[bool, typer.Option("--loud")] = False
    ) -> None:
        """Draw."""
        calls.append((what, size, loud))

    app = typer.Typer()
    app.command()(draw)
    app(args=arguments, standalone_mode=False)
    (call,) = calls
    return call


@pytest.mark.parametrize(
    ("words", "size", "loud"),
    [
        ([], Size(width=3, height=4), False),
        (["--height", "9"], Size(width=3, height=9), False),
        (["--loud", "--width", "1", "--height", "2"], Size(width=1, height=2), True),
    ],
)
def test_a_command_gets_its_groups_made(words: list[str], size: Size, loud: bool) -> None:
    assert played(["house", *words]) == ("house", size, loud)


def test_options_of_a_group_stand_where_the_group_stands() -> None:
    @spread
    def draw(*, first: int = 0, size: Size, last: int = 0) -> None: ...

    assert list(inspect.signature(draw).parameters) == ["first", "width", "height", "last"]
    assert draw.__name__ == "draw"


def test_every_field_of_a_job_but_its_target_and_provenance_has_an_option() -> None:
    assert {field.name for field in fields(JobSpec)} - set(OPTIONS) == {
        "target", "provenance", "zero", "halved", "few_micro_batches"
    }  # fmt: skip
    assert sorted(option.name for option in JOB_PARAMETERS) == sorted([*OPTIONS, "timeout", "config", "file_kind"])


def test_only_what_was_typed_is_given() -> None:
    untyped = {option.name: option.default for option in JOB_PARAMETERS}
    assert JobOptions.of(**untyped) == JobOptions()
    typed = JobOptions.of(**untyped | {"batch_size": 1, "allow_network": True, "inputs": [], "timeout": 3.0})
    assert typed == JobOptions(given={"batch_size": 1, "allow_network": True}, timeout=3.0)


def test_both_groups_of_reports_have_the_same_options_in_the_same_order() -> None:
    assert [field.name for field in fields(ReportOptions)] == [field.name for field in fields(ExportOptions)]
