"""``memplan recommend``: complaints all at once, exit codes, and the setup that it writes."""

import dataclasses
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import typer

from memplan.cli.app import main, typer_app
from memplan.job.setup_file import load_setup
from memplan.plan.recommend import compose
from memplan.plan.recommend.records import Ending, Recommendation, Search
from tests.cli.options import CACHE, ESTIMATE
from tests.report.example_recommendations import answer

RECOMMEND = (ESTIMATE - {"--alloc-conf", "--fail-on"}) | {
    "--gpus", "--utilization", "--host-memory", "--target-batch", "--fill", "--step-time", "--allow", "--keep",
    "--alpha", "--beta", "--time-limit", "--jobs", "--noise-scale", "--vary", "--out", "-o", "--emit",
}  # fmt: skip


def test_options() -> None:
    command = typer.main.get_command(typer_app()).commands["recommend"]
    assert {word for parameter in command.params for word in parameter.opts} == RECOMMEND | CACHE


def test_everything_that_is_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--gpu nothing --gpus 0 --allow colour --keep size --utilization wild --host-memory much --alpha -1"
    typed += " --time-limit 0"
    assert main(["recommend", "preset:gpt2", *typed.split()]) == 2
    errors = capsys.readouterr().err
    for word in ("nothing", "--gpus", "colour", "size", "wild", "much", "--alpha", "--time-limit"):
        assert word in errors


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    """What the search was asked; it answers at once."""
    seen: list[Search] = []

    def found(spec: Any, profile: Any, search: Search, **_: Any) -> Recommendation:
        seen.append(search)
        return answer()

    monkeypatch.setattr(compose, "recommend", found)
    return seen


def test_the_best_is_written_for_frameworks(
    asked: list[Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memplan.cli.recommend.peak_tracer", lambda *_, **__: None)
    typed = f"--gpu rtx-4090 --emit torch={tmp_path}/code --emit accelerate={tmp_path} --json"
    assert main(["recommend", "preset:gpt2", *typed.split()]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["command"] == "recommend"
    assert f"{tmp_path}/code/train_setup.py\n" in told.err
    assert f"{tmp_path}/accelerate.yaml\n" in told.err
    assert "note: " in told.err


@pytest.mark.parametrize("word", ["keras", "hf=/nowhere/at/all"])
def test_what_cannot_be_written_for_is_said_before_the_search(
    word: str, asked: list[Search], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "preset:gpt2", "--gpu", "t4", "--emit", word]) == 2
    assert "--emit" in capsys.readouterr().err
    assert not asked


def test_what_was_typed_reaches_the_search(asked: list[Search]) -> None:
    typed = "--gpu rtx-4090 --gpus 4 --target-batch 64 --allow precision,optimizer --keep loss --utilization balanced"
    assert main(["recommend", "preset:gpt2", *typed.split(), "--host-memory", "64GiB", "--step-time", "2s"]) == 0
    (search,) = asked
    assert (search.gpus, search.target_batch) == (4, 64)
    assert (search.allow, search.keep) == (("precision", "optimizer"), ("loss",))
    assert search.limits.utilization == "balanced"
    assert (search.limits.host_bytes, search.limits.step_seconds) == (64 << 30, 2.0)


def test_the_best_is_written_as_a_setup(asked: list[Search], tmp_path: Path) -> None:
    file = tmp_path / "setup.json"
    assert main(["recommend", "preset:gpt2", "--gpu", "rtx-4090", "-o", str(file)]) == 0
    setup, best = load_setup(file), answer().best
    assert best is not None
    assert setup.job == best.candidate.spec
    assert setup.predicted.device_bytes == best.device_bytes


@pytest.mark.parametrize(("ending", "code"), [("nothing_fits", 3), ("not_found", 4)])
def test_that_nothing_fits_is_exit_3_and_that_nothing_was_found_4(
    ending: Ending, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proof = dataclasses.replace(answer().proof, ending=ending, gap=None)
    nothing = dataclasses.replace(answer(), rows=(), cheapest=None, proof=proof)
    monkeypatch.setattr(compose, "recommend", lambda *_, **__: nothing)
    file = tmp_path / "setup.json"
    typed = ["recommend", "preset:gpt2", "--gpu", "rtx-4090", "-o", str(file)]
    assert main(typed) == code
    assert not file.exists()
    assert main([*typed, "--exit-zero"]) == 0


def test_an_interrupt_prints_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = dataclasses.replace(answer().proof, ending="best_of_proved", proved=2, gap=0.1234)
    found = dataclasses.replace(answer(), interrupted=True, ended="budget", proof=proof)
    monkeypatch.setattr(compose, "recommend", lambda *_, **__: found)
    assert main(["recommend", "preset:gpt2", "--gpu", "rtx-4090", "--loop", "plain"]) == 130
    said = capsys.readouterr()
    assert "BEST OF WHAT WAS PROVED" in said.out
    assert "2 of 12, at most 12.4 % from the best" in said.out
    assert said.err == "error: interrupted\n"


@pytest.mark.parametrize(
    ("typed", "seconds", "traces"), [("90", 90.0, None), ("2m", 120.0, None), ("40traces", math.inf, 40)]
)
def test_a_budget_is_time_or_work(asked: list[Search], typed: str, seconds: float, traces: int | None) -> None:
    assert main(["recommend", "preset:gpt2", "--gpu", "rtx-4090", "--time-limit", typed]) == 0
    (search,) = asked
    assert (search.budget_seconds, search.budget_traces) == (seconds, traces)


@pytest.mark.parametrize("planned", [True, False])
def test_the_folder_of_a_plan_stays_only_with_the_plan(
    planned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(spec: Any, profile: Any, search: Search, **_: Any) -> Recommendation:
        assert search.plan_file is not None
        assert search.plan_file.parent.is_dir()
        if planned:
            search.plan_file.write_text("{}")
        return answer()

    monkeypatch.setattr(compose, "recommend", found)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["recommend", "preset:gpt2", "--gpu", "t4"]) == 0
    assert [path.name for path in tmp_path.glob("memplan-*/*")] == ["best.plan.json"] * planned
    assert len(list(tmp_path.iterdir())) == planned
