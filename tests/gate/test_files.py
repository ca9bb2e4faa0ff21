"""Files are there whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from memplan.files.write import write_whole


def test_a_file_is_written_and_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(path, b"first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_what_was_there(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"first")

    def interrupted(*_: object) -> None:
        raise stop

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(stop):
        write_whole(path, b"second")
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_permissions_stay_and_new_files_follow_the_umask(tmp_path: Path) -> None:
    old, new, usual = tmp_path / "old", tmp_path / "new", tmp_path / "usual"
    old.write_bytes(b"")
    old.chmod(0o640)
    usual.write_bytes(b"")
    write_whole(old, b"x")
    write_whole(new, b"x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert new.stat().st_mode == usual.stat().st_mode


def test_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"first")
    link.symlink_to(target)
    write_whole(link, b"second")
    assert link.is_symlink()
    assert target.read_bytes() == b"second"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_whole, args=(pipe, b"content"))
    writer.start()
    assert pipe.read_bytes() == b"content"
    writer.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_whole(tmp_path / "none" / "report.json", b"")
