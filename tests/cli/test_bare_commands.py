"""Commands without a target: in a project its jobs, elsewhere the only candidate of the folder."""

import json
from pathlib import Path

import pytest

from memplan.cli import bare
from memplan.cli.app import main
from memplan.errors import UsageError
from tests.support.targets import NET

PROJECT = """
gpus = ["t4", "a10"]

[[job]]
name = "small"
target = "net.py"
batch-size = 4

[[job]]
name = "large"
target = "net.py"
batch-size = 64
precision = "bf16"
gpus = ["l4"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_candidate_is_taken_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.py").write_text(NET)
    (folder / "test_net.py").write_text(NET)
    (folder / "tools.py").write_text("def helper():\n    return 1\n")
    assert main(["reuse-plan", "--batch-size", "8", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["result"] == "optimal"
    assert "net.py is the only model or program in this folder" in err
    assert "memplan reuse-plan net.py --batch-size 8" in err


def test_several_candidates_and_none_say_what_to_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint-plan"]) == 2
    assert "no Python file of this folder defines a model" in " ".join(capsys.readouterr().err.split())
    (folder / "one.py").write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    (folder / "two.py").write_text(NET)
    assert main(["checkpoint-plan"]) == 2
    err = capsys.readouterr().err
    assert "one.py, two.py" in err
    assert "memplan checkpoint-plan one.py" in err


def test_jobs_of_a_project_as_they_would_be_typed(folder: Path) -> None:
    (folder / "memplan.toml").write_text(PROJECT)
    small, large = bare.completed(["estimate", "--quiet"])
    assert small == ["estimate", "net.py", "--gpu", "t4", "--gpu", "a10", "--batch-size", "4", "--quiet"]
    assert large == ["estimate", "net.py", "--gpu", "l4", "--batch-size", "64", "--precision", "bf16", "--quiet"]
    first, _ = bare.completed(["recommend"])
    assert first == ["recommend", "net.py", "--gpu", "t4", "--batch-size", "4"]
    (folder / "inner").mkdir()
    assert next(bare.completed(["graph"], folder / "inner"))[1] == "net.py"


def test_a_project_file_without_a_job_is_named(folder: Path) -> None:
    (folder / "memplan.toml").write_text(PROJECT.replace("[[job]]", "[[jobs]]"))
    for wanted in ("no Python file of this folder", "this folder has one.py, two.py"):
        with pytest.raises(UsageError, match=wanted) as refused:
            list(bare.completed(["estimate"]))
        assert refused.value.what.endswith("; memplan.toml has no job")
        (folder / "one.py").write_text(NET)
        (folder / "two.py").write_text(NET)


def test_a_project_is_estimated_job_by_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "memplan.toml").write_text(PROJECT)
    (folder / "net.py").write_text(NET)
    assert main(["estimate", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert [name for name in ("t4", "a10", "l4") if name in out] == ["t4", "a10", "l4"]
    assert "job 'small' of memplan.toml" in err
    assert "job 'large' of memplan.toml" in err


def test_a_wrong_option_is_still_the_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "net.py").write_text(NET)
    assert main(["checkpoint-plan", "--no-such-option"]) == 2
    assert "no-such-option" in capsys.readouterr().err
    with pytest.raises(UsageError, match="names no target"):
        next(bare.completed(["batch"], _project_of_a_script(folder)))


def test_jobs_that_are_no_list_of_tables_are_told(folder: Path) -> None:
    (folder / "memplan.toml").write_text('[job.small]\ntarget = "net.py"\n')
    with pytest.raises(UsageError, match=r"\[\[job\]\]"):
        next(bare.completed(["estimate"]))


def _project_of_a_script(folder: Path) -> Path:
    (folder / "memplan.toml").write_text('[[job]]\nname = "script"\nscript = "train.py"\n')
    return folder


@pytest.mark.slow
def test_without_a_budget_the_least_memory_that_is_not_too_slow(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "net.py").write_text(NET)
    words = ["checkpoint-plan", "--batch-size", "16384", "--json", "--quiet", "--gpu", "cpu"]
    found = {}
    for share in ("0.0", "0.5"):
        assert main([*words, "--slowdown", share]) == 0
        found[share] = json.loads(capsys.readouterr().out)
        assert found[share]["overhead_ratio"] <= float(share)
    assert found["0.5"]["peak_after_bytes"] < found["0.0"]["peak_after_bytes"]
    assert min(point["peak_bytes"] for point in found["0.5"]["pareto"]) <= found["0.5"]["peak_after_bytes"]
    assert main([*words, "--slowdown", "-1"]) == 2
    assert "--slowdown must be a share" in capsys.readouterr().err
