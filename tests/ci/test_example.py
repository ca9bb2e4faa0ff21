"""The example repository is what its README says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.gate.saved import load_entries
from memplan.project.read import load_project

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci_gate"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__", ".*cache")))


def gate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMPLAN_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "memplan", "gate", "--cache-dir", "cache", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_baseline_has_every_job_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    project = load_project(None, environment={})
    assert project.baseline is not None
    assert set(load_entries(project.baseline)) == {(job.name, gpu) for job in project.jobs for gpu in job.gpus}


def test_the_readme_names_every_file() -> None:
    text = (EXAMPLE / "README.md").read_text()
    tracked = [path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*") if path.is_file()]
    files = {path for path in tracked if "cache" not in path} - {"README.md", ".gitignore", "pytest.ini"}
    assert {path for path in files if f"`{path}`" not in text} == set()


def test_the_patch_doubles_the_inner_layer(copy: Path) -> None:
    before = (copy / "model.py").read_text()
    subprocess.run(["git", "apply", "double-a-layer.patch"], cwd=copy, check=True, capture_output=True)
    after = (copy / "model.py").read_text()
    assert after == before.replace("inner = 4 * config.width", "inner = 8 * config.width") != before


@pytest.mark.slow
def test_as_it_lies_here_everything_passes(copy: Path) -> None:
    done = gate(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 3 passed" in done.stdout


@pytest.mark.slow
def test_the_others_fail_for_the_reasons_that_the_readme_gives(copy: Path) -> None:
    def codes(*words: str) -> set[str]:
        done = gate(copy, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        return set(re.findall(r"MP\d+", done.stdout))

    assert codes("--project", "over-budget.toml") == {"MP001", "MP004"}
    subprocess.run(["git", "apply", "double-a-layer.patch"], cwd=copy, check=True, capture_output=True)
    assert codes() == {"MP001", "MP005", "MP006"}
