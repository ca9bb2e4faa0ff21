"""Where compiled loops are kept: by what all of them are, so that none outlives a change of another file."""

from pathlib import Path

import pytest

from memplan.plan.reuse import compiled


def test_the_folder_is_another_one_after_any_change(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("def loop(): ...\n")
    (tmp_path / "records.py").write_text("class Old: ...\n")
    first = compiled._folder.__wrapped__(tmp_path)
    assert compiled._folder.__wrapped__(tmp_path) == first
    assert Path(first).parent == tmp_path / "__pycache__"
    (tmp_path / "records.py").write_text("class New: ...\n")
    assert compiled._folder.__wrapped__(tmp_path) != first


def test_what_cannot_be_written_is_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.os, "access", lambda *_: False)
    monkeypatch.setattr(compiled.platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "user")
    assert Path(compiled._folder.__wrapped__(tmp_path)).parent == tmp_path / "user"


@pytest.mark.skipif(not compiled.HAS_NUMBA, reason="needs numba")
def test_a_loop_is_kept_there_and_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", "")
    loop = compiled.compiled(lambda number: number + 1)
    assert loop._cache.cache_path.startswith(compiled._folder())
    assert numba.core.config.CACHE_DIR == ""
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(Path.home()))
    assert compiled.compiled(lambda number: number + 2)._cache.cache_path.startswith(str(Path.home()))
