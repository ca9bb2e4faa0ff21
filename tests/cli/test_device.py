"""``--gpu``: the same default everywhere, and no second one that is dropped in silence."""

from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.cli.device import profile_for, profiles_for
from memplan.errors import UsageError
from memplan.project.read import load_project

ONE = ("checkpoint-plan", "graph", "recommend", "reuse-plan", "simulate")
"""Commands that answer for one GPU at a time."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_project_it_is_one_h100_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile_for(None, None).name == "h100-80g"
    assert [profile.name for profile in profiles_for([], None)] == ["h100-80g"]
    assert capsys.readouterr().err == "note: no --gpu was given: this is for one h100-80g\n" * 2


def test_a_project_names_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "memplan.toml").write_text('gpus = ["t4", "l4"]\n[[job]]\nname = "a"\ntarget = "preset:gpt2"\n')
    assert [profile.name for profile in profiles_for(None, None)] == ["t4", "l4"]
    assert profile_for(None, None).name == "t4"
    assert capsys.readouterr().err.splitlines() == [
        "note: no --gpu was given: this is for t4, l4, as memplan.toml says",
        "note: no --gpu was given: this is for t4, as memplan.toml says",
    ]


def test_patterns_mean_one_gpu_where_they_do(folder: Path) -> None:
    assert profile_for(["*t4*"], None).name == "t4"
    assert len(profiles_for(["all"], None)) > 20
    with pytest.raises(UsageError, match="one GPU at a time, not t4, l4"):
        profile_for(["t4", "l4"], None)


@pytest.mark.parametrize("command", ONE)
def test_a_second_gpu_is_refused_rather_than_the_first_dropped(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "preset:gpt2", "--gpu", "t4", "--gpu", "l4"]) == 2
    assert "--gpu: one GPU at a time, not t4, l4" in capsys.readouterr().err


def test_gpus_of_a_gate_may_be_a_pattern(folder: Path) -> None:
    (folder / "memplan.toml").write_text('gpus = ["*t4"]\n[[job]]\nname = "a"\ntarget = "preset:gpt2"\n')
    [job] = load_project(None).jobs
    assert job.gpus == ("t4",)
