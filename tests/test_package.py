"""The wheel: what it holds, and that it works where there is no repository."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def installed(unpacked: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The unpacked wheel's command line, run in a folder that knows nothing of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    return subprocess.run(
        [sys.executable, "-m", "memplan", *words],
        cwd=unpacked.parent, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_every_source_file_is_in_the_wheel(unpacked: Path) -> None:
    def files(folder: Path) -> set[str]:
        return {
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.suffix in {".py", ".toml", ".json", ".typed", ".css", ".js", ".j2"}
        }

    profiles = {f"hardware_profiles/{path.name}" for path in (ROOT / "hardware_profiles").glob("*.toml")}
    assert files(unpacked / "memplan") == files(ROOT / "memplan") | profiles
    assert len(profiles) >= 35


def test_nothing_else_is_in_the_wheel(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {"memplan", f"memplan-{PROJECT['version']}.dist-info"}


def test_metadata(unpacked: Path) -> None:
    [info] = unpacked.glob("*.dist-info")
    metadata = importlib.metadata.Distribution.at(info).metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_profiles_and_presets_are_found_outside_the_repository(unpacked: Path) -> None:
    gpus = installed(unpacked, "gpus")
    assert gpus.returncode == 0, gpus.stderr
    listed = {line.split()[0] for line in gpus.stdout.splitlines() if line.strip()}
    assert {path.stem for path in (ROOT / "hardware_profiles").glob("*.toml")} <= listed
    assert "llama-3.1-8b" in installed(unpacked, "presets").stdout


def test_estimates_outside_the_repository(unpacked: Path) -> None:
    example = ROOT / "examples" / "lstm_language_model.py"
    done = installed(unpacked, "estimate", str(example), "--gpu", "t4", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("✓ FITS")
