"""What a program writes is there for it, under the names that it gave, and nowhere else."""

# Programs call functions of ``os`` too.
# ruff: noqa: PTH102, PTH103, PTH104, PTH105, PTH106, PTH107, PTH108, PTH110, PTH123, PTH202, PTH208, PTH211

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from memplan.tracing.script.effects import no_side_effects


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file and a folder in it, which are as they were afterwards, while nothing may be written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept.txt").write_text("kept")
    with no_side_effects(lambda _: None):
        yield tmp_path
    os.chdir(tmp_path)
    assert os.listdir(tmp_path) == ["data"]
    assert os.listdir(tmp_path / "data") == ["kept.txt"]
    assert (tmp_path / "data" / "kept.txt").read_text() == "kept"


def test_folders_are_made_and_may_be_written(disk: Path) -> None:
    Path("runs/1").mkdir(parents=True)
    assert os.access("runs/1", os.W_OK | os.X_OK)
    assert Path("runs").is_dir()
    with pytest.raises(FileExistsError):
        os.mkdir("runs")
    with pytest.raises(FileNotFoundError):
        os.mkdir("missing/1")
    os.makedirs("data", exist_ok=True)
    Path("runs/1/log.txt").touch()
    assert os.path.exists(disk / "runs" / "1" / "log.txt")


def test_folders_have_what_was_there_and_what_was_written(disk: Path) -> None:
    Path("data/new.txt").write_text("new")
    assert sorted(os.listdir("data")) == ["kept.txt", "new.txt"]
    assert sorted(path.read_text() for path in Path("data").glob("*.txt")) == ["kept", "new"]
    assert sorted(Path(os.fsdecode(entry)).read_text() for entry in os.scandir(b"data")) == ["kept", "new"]
    assert [names for _, _, names in os.walk(disk)] == [[], ["kept.txt", "new.txt"]]


def test_a_file_that_is_changed_begins_as_it_is(disk: Path) -> None:
    with open("data/kept.txt", "a") as file:
        file.write(" and more")
    assert Path("data/kept.txt").read_text() == "kept and more"
    assert os.path.getsize("data/kept.txt") == len("kept and more")
    with pytest.raises(PermissionError):
        os.remove("data/kept.txt")


def test_a_program_goes_into_a_folder_that_it_made(disk: Path) -> None:
    os.mkdir("run")
    os.chdir("run")
    Path("log.txt").write_text("log")
    assert Path("log.txt").read_text() == (disk / "run" / "log.txt").read_text() == "log"
    os.chdir("..")


def test_what_was_saved_is_moved_copied_linked_and_removed(disk: Path) -> None:
    os.mkdir("out")
    torch.save({}, "out/temporary.pt")
    os.replace("out/temporary.pt", "out/last.pt")
    os.link("out/last.pt", "out/best.pt")
    shutil.copy2("out/last.pt", "out/first.pt")
    os.symlink("first.pt", "out/zero.pt")
    shutil.move("out/first.pt", "out/second.pt")
    assert sorted(os.listdir("out")) == ["best.pt", "last.pt", "second.pt", "zero.pt"]
    os.unlink("out/best.pt")
    shutil.rmtree("out")
    assert not os.path.exists("out")


def test_temporary_files_become_files_and_go(disk: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.txt"
        path.write_text("new")
        os.replace(path, "data/new.txt")
        Path(folder, "left.txt").touch()
    assert not Path(folder).exists()
    assert Path("data/new.txt").read_text() == "new"


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.rename("data/kept.txt", "new.txt"),
        lambda: os.link("data/kept.txt", "new.txt"),
        lambda: os.symlink("data/kept.txt", "new.txt"),
        lambda: os.truncate("data/kept.txt", 0),
        lambda: shutil.rmtree("data"),
        lambda: os.rmdir("data"),
        lambda: shutil.move("data", "other"),
    ],
)
def test_what_was_there_is_not_changed(change: object, disk: Path) -> None:
    assert callable(change)
    with pytest.raises(PermissionError):
        change()
