"""An unchanged job is found again; a changed one never."""

import os
import sys
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.reads import Reads, file_digest, variable_digest
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure import cache as module
from memplan.measure.cache import MOST_ENTRIES, Cache
from memplan.measure.kept_answers import KeptAnswer
from memplan.measure.records import RecordedEstimate
from tests.gate.conftest import flat
from tests.report.example_estimates import FITS, OOM

PROFILES = (load_profile("h100-80g"), load_profile("a100-40g"))
SPEC = JobSpec(target=FileTarget(path=Path("model.py")))
ANSWER = tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in (FITS, OOM))
WITH_TIMELINES = (replace(ANSWER[0], digest=flat(30)), ANSWER[1])
"""The second has no figures to draw."""


def keep(folder: Path, read: Reads, answer: tuple[RecordedEstimate, ...] = ANSWER, *, conf: str = "") -> None:
    KeptAnswer(Cache(folder), SPEC, PROFILES, conf).keep(answer, read)


def find(folder: Path, *, timelines: bool = False) -> object:
    return KeptAnswer(Cache(folder), SPEC, PROFILES).find(timelines=timelines)


def reads(*paths: Path, environment: tuple[str, ...] = ()) -> Reads:
    return Reads(
        files={str(path): file_digest(str(path)) for path in paths},
        environment={name: variable_digest(name) for name in environment},
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text("width = 8\n")
    return path


@pytest.fixture
def folder(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the answer of a job that has read its model, a file that is not there, and a variable."""
    monkeypatch.setenv("WIDTH", "8")
    folder = tmp_path / "cache"
    keep(folder, reads(model, tmp_path / "settings.py", environment=("WIDTH", "DEPTH")))
    return folder


def test_what_was_kept_is_find(folder: Path) -> None:
    assert find(folder) == ANSWER


def test_an_empty_cache_finds_nothing(tmp_path: Path) -> None:
    assert find(tmp_path / "none") is None


def test_another_content_of_any_file_is_a_miss_and_the_old_one_a_hit_again(folder: Path, model: Path) -> None:
    before = model.stat()
    model.write_text("width = 9\n")
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
    assert find(folder) is None
    model.write_text("width = 8\n")
    assert find(folder) == ANSWER


def test_a_file_that_was_looked_for_in_vain_and_a_file_that_is_gone_are_misses(folder: Path, model: Path) -> None:
    settings = model.with_name("settings.py")
    settings.write_text("")
    assert find(folder) is None
    settings.unlink()
    assert find(folder) == ANSWER
    model.unlink()
    assert find(folder) is None


def test_another_time_of_a_file_is_a_hit(folder: Path, model: Path) -> None:
    os.utime(model, (1, 1))
    assert find(folder) == ANSWER


@pytest.mark.parametrize(("name", "value"), [("WIDTH", "9"), ("WIDTH", None), ("DEPTH", "1")])
def test_another_value_of_a_variable_is_a_miss(
    folder: Path, name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert find(folder) is None


def test_values_of_variables_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    keep(folder, reads(environment=("HF_TOKEN",)))
    assert all(b"very-secret" not in path.read_bytes() for path in folder.iterdir())


def test_another_option_is_a_miss(folder: Path) -> None:
    for spec in (replace(SPEC, batch_size=2), replace(SPEC, provenance={"batch_size": "else"})):
        assert KeptAnswer(Cache(folder), spec, PROFILES).find() is None
    assert KeptAnswer(Cache(folder), SPEC, PROFILES, "expandable_segments:True").find() is None


def test_other_profiles_are_a_miss(folder: Path) -> None:
    assert KeptAnswer(Cache(folder), SPEC, PROFILES[::-1]).find() is None
    assert KeptAnswer(Cache(folder), SPEC, (replace(PROFILES[0], context_bytes=1), PROFILES[1])).find() is None


@pytest.mark.parametrize("what", ["_distributions", "_own_source"])
def test_another_memplan_or_another_installed_package_is_a_miss(
    folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, what, lambda *_: "another")
    assert find(folder) is None


def test_the_same_words_in_another_folder_are_a_miss(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find(folder) is None


def test_versions_of_installed_packages_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_attn-2.0.dist-info").mkdir()
    before = module._distributions(tuple(sys.path))
    monkeypatch.syspath_prepend(tmp_path)
    assert {*module._distributions(tuple(sys.path))} - {*before} == {"flash_attn-2.0.dist-info"}
    assert any(name.startswith("torch-") for name in before)


HOLDS = b'{"files": {}, "environment": {}}\n'
BROKEN = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"files": 5}\n', b'{"files": {}}\n', HOLDS, HOLDS + b"{}",
          HOLDS + zlib.compress(b"[{}, {}]"), HOLDS + zlib.compress(b"[]"), HOLDS + zlib.compress(b"5"),
          b'{"files": {"model.py": 5}, "environment": {}}\n']  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_entry_is_a_miss(folder: Path, content: bytes) -> None:
    for path in folder.iterdir():
        path.write_bytes(content)
    assert find(folder) is None


@given(st.binary(max_size=60), st.integers(0, 2000), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_anywhere_is_a_miss_or_does_no_harm(folder: Path, bytes_: bytes, at: int, cut: bool) -> None:
    """A checksum lies over the content; of the line before it, what was read decides whether the entry holds."""
    for path in folder.iterdir():
        whole = path.read_bytes()
        path.write_bytes(whole[:at] if cut else whole[:at] + bytes_ + whole[at + len(bytes_) :])
        assert find(folder) in (None, ANSWER)
        path.write_bytes(whole)


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("")
    keep(tmp_path / "file" / "cache", reads(model))
    assert find(tmp_path / "file" / "cache") is None


def test_several_branches_are_kept_side_by_side(folder: Path, model: Path) -> None:
    model.write_text("width = 9\n")
    keep(folder, reads(model), ANSWER[::-1])
    assert find(folder) == ANSWER[::-1]
    model.write_text("width = 8\n")
    assert find(folder) == ANSWER


def test_no_more_than_so_many_are_kept(folder: Path, model: Path) -> None:
    for width in range(2 * MOST_ENTRIES):
        model.write_text(f"width = {width}\n")
        keep(folder, reads(model))
    assert len(list(folder.iterdir())) == MOST_ENTRIES
    assert find(folder) == ANSWER


def test_what_nobody_asked_for_is_forgotten(folder: Path, model: Path) -> None:
    old, unfinished, other = folder / "0123-4567", folder / ".0123.tmp", folder / "a-folder"
    other.mkdir()
    for path, age in ((old, module.LONGEST_UNUSED), (unfinished, module.ABANDONED)):
        path.write_text("{}")
        os.utime(path, (time.time() - 2 * age,) * 2)
    keep(folder, reads(model))
    assert not old.exists()
    assert not unfinished.exists()
    assert other.exists()
    assert find(folder) == ANSWER


def test_the_least_recently_used_go_where_there_are_too_many_bytes(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=4000)
    nothing = Reads(files={}, environment={})
    for hour, key in enumerate(("a", "b", "c")):
        cache.keep(key, b"x" * 1000, nothing)
        (path,) = tmp_path.glob(f"{key}-*")
        os.utime(path, (time.time() - 3600 * (9 - hour),) * 2)
    assert cache.find("a", bytes) is not None, "now it is the one used last"
    cache.keep("d", b"x" * 2500, nothing)
    assert {key for key in "abcd" if cache.find(key, bytes)} == {"a", "d"}


def test_what_an_answer_rests_on_is_told_with_it(tmp_path: Path, model: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep("a", b"answer", reads(model))
    assert cache.find("a", bytes) == (b"answer", reads(model))


def test_many_may_write_and_read_at_once(tmp_path: Path, model: Path) -> None:
    folder, answers, stop = tmp_path / "cache", [], threading.Event()

    def write() -> None:
        while not stop.is_set():
            keep(folder, reads(model))

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    while len(answers) < 50:
        answers += [answer] if (answer := find(folder)) is not None else []
    stop.set()
    for writer in writers:
        writer.join()
    assert all(answer == ANSWER for answer in answers)
    assert len(list(folder.iterdir())) == 1


def test_timelines_are_found_where_they_were_kept_and_are_wanted(folder: Path, model: Path) -> None:
    assert find(folder, timelines=True) is None
    keep(folder, reads(model), WITH_TIMELINES)
    assert find(folder, timelines=True) == WITH_TIMELINES
    assert find(folder) == ANSWER


def test_a_run_without_timelines_leaves_those_that_there_are(tmp_path: Path, model: Path) -> None:
    for answer in (ANSWER, WITH_TIMELINES, ANSWER):
        keep(tmp_path, reads(model), answer)
    assert find(tmp_path, timelines=True) == WITH_TIMELINES


@pytest.mark.parametrize("text", [b"5", b"[{}, null]", b"[null]", b"null"])
def test_broken_timelines_are_a_miss_for_whom_they_matter(tmp_path: Path, model: Path, text: bytes) -> None:
    keep(tmp_path, reads(model), ANSWER)
    before = {*tmp_path.iterdir()}
    keep(tmp_path, reads(model), WITH_TIMELINES)
    (timelines,) = {*tmp_path.iterdir()} - before - {model}
    timelines.write_bytes(timelines.read_bytes().partition(b"\n")[0] + b"\n" + zlib.compress(text))
    assert find(tmp_path, timelines=True) is None
    assert find(tmp_path) == ANSWER
