"""An unchanged job is found again; a changed one never."""

import gzip
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.gate import cache as module
from memplan.gate.cache import MOST_ENTRIES, Cache, key
from memplan.hardware.catalog import load_profile
from memplan.job.reads import Reads, file_digest, variable_digest
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.records import RecordedEstimate
from memplan.project.records import ProjectJob
from tests.gate.conftest import flat
from tests.report.example_estimates import FITS, OOM

PROFILES = (load_profile("h100-80g"), load_profile("a100-40g"))
JOB = ProjectJob(name="llama", spec=JobSpec(target=FileTarget(path=Path("model.py"))), gpus=("h100-80g", "a100-40g"))
ANSWER = tuple(RecordedEstimate(estimate=estimate, history=None) for estimate in (FITS, OOM))
WITH_TIMELINES = (replace(ANSWER[0], digest=flat(30)), ANSWER[1])
"""The second has no figures to draw."""


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
    Cache(folder).keep(JOB, PROFILES, ANSWER, reads(model, tmp_path / "settings.py", environment=("WIDTH", "DEPTH")))
    return folder


def found(folder: Path) -> object:
    return Cache(folder).find(JOB, PROFILES)


def test_what_was_kept_is_found(folder: Path) -> None:
    assert found(folder) == ANSWER


def test_an_empty_cache_finds_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "none") is None


def test_another_content_of_any_file_is_a_miss_and_the_old_one_a_hit_again(folder: Path, model: Path) -> None:
    before = model.stat()
    model.write_text("width = 9\n")
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
    assert found(folder) is None
    model.write_text("width = 8\n")
    assert found(folder) == ANSWER


def test_a_file_that_was_looked_for_in_vain_and_a_file_that_is_gone_are_misses(folder: Path, model: Path) -> None:
    settings = model.with_name("settings.py")
    settings.write_text("")
    assert found(folder) is None
    settings.unlink()
    assert found(folder) == ANSWER
    model.unlink()
    assert found(folder) is None


def test_another_time_of_a_file_is_a_hit(folder: Path, model: Path) -> None:
    os.utime(model, (1, 1))
    assert found(folder) == ANSWER


@pytest.mark.parametrize(("name", "value"), [("WIDTH", "9"), ("WIDTH", None), ("DEPTH", "1")])
def test_another_value_of_a_variable_is_a_miss(
    folder: Path, name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert found(folder) is None


def test_values_of_variables_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    Cache(folder).keep(JOB, PROFILES, ANSWER, reads(environment=("HF_TOKEN",)))
    assert all(b"very-secret" not in path.read_bytes() for path in folder.rglob("*.json"))


@pytest.mark.parametrize("change", [
    {"spec": replace(JOB.spec, batch_size=2)}, {"spec": replace(JOB.spec, provenance={"batch_size": "else"})},
    {"alloc_conf": "expandable_segments:True"},
])  # fmt: skip
def test_another_option_is_a_miss(folder: Path, change: dict[str, object]) -> None:
    assert Cache(folder).find(replace(JOB, **change), PROFILES) is None


def test_names_and_limits_of_a_job_do_not_matter(folder: Path) -> None:
    assert Cache(folder).find(replace(JOB, name="other", line=9, timeout=5.0), PROFILES) == ANSWER


def test_other_profiles_are_a_miss(folder: Path) -> None:
    assert Cache(folder).find(JOB, PROFILES[::-1]) is None
    assert Cache(folder).find(JOB, (replace(PROFILES[0], context_bytes=1), PROFILES[1])) is None


@pytest.mark.parametrize("what", ["_distributions", "_own_source"])
def test_another_memplan_or_another_installed_package_is_a_miss(
    folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, what, lambda: "another")
    module._surroundings.cache_clear()
    assert found(folder) is None
    monkeypatch.undo()
    module._surroundings.cache_clear()


def test_versions_of_installed_packages_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flash_attn-2.0.dist-info").mkdir()
    before = module._distributions()
    monkeypatch.syspath_prepend(tmp_path)
    assert {*module._distributions()} - {*before} == {"flash_attn-2.0.dist-info"}
    assert any(name.startswith("torch-") for name in before)


BROKEN = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"reads": 5}', b'{"reads": {"files": {}}}',
          b'{"reads": {"files": {}, "environment": {}}, "estimates": [{}]}']  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_entry_is_a_miss(folder: Path, content: bytes) -> None:
    for path in folder.rglob("*.json"):
        path.write_bytes(content)
    assert found(folder) is None


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    cache.keep(JOB, PROFILES, ANSWER, reads(model))
    assert cache.find(JOB, PROFILES) is None


def test_several_branches_are_kept_side_by_side(folder: Path, model: Path) -> None:
    model.write_text("width = 9\n")
    Cache(folder).keep(JOB, PROFILES, ANSWER[::-1], reads(model))
    assert found(folder) == ANSWER[::-1]
    model.write_text("width = 8\n")
    assert found(folder) == ANSWER


def test_no_more_than_so_many_are_kept(folder: Path, model: Path) -> None:
    for width in range(2 * MOST_ENTRIES):
        model.write_text(f"width = {width}\n")
        Cache(folder).keep(JOB, PROFILES, ANSWER, reads(model))
    assert len(list((folder / key(JOB, PROFILES)).iterdir())) == MOST_ENTRIES
    assert found(folder) == ANSWER


def test_what_nobody_asked_for_is_forgotten(folder: Path, model: Path) -> None:
    old = folder / "0123"
    old.mkdir()
    (old / "entry.json").write_text("{}")
    os.utime(old, (1, 1))
    Cache(folder).keep(JOB, PROFILES, ANSWER, reads(model))
    assert not old.exists()
    assert found(folder) == ANSWER


def test_many_may_write_and_read_at_once(tmp_path: Path, model: Path) -> None:
    folder, answers, stop = tmp_path / "cache", [], threading.Event()

    def write() -> None:
        while not stop.is_set():
            Cache(folder).keep(JOB, PROFILES, ANSWER, reads(model))

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    while len(answers) < 100:
        answers += [answer] if (answer := found(folder)) is not None else []
    stop.set()
    for writer in writers:
        writer.join()
    assert all(answer == ANSWER for answer in answers)
    assert [path.suffix for path in folder.rglob("*.*")] == [".json"]


def test_timelines_are_found_where_they_were_kept_and_are_wanted(folder: Path, model: Path) -> None:
    cache = Cache(folder)
    assert cache.find(JOB, PROFILES, timelines=True) is None
    cache.keep(JOB, PROFILES, WITH_TIMELINES, reads(model, model.with_name("settings.py")))
    assert cache.find(JOB, PROFILES, timelines=True) == WITH_TIMELINES
    assert cache.find(JOB, PROFILES) == ANSWER
    assert len(list(folder.rglob("*.json"))) == 2, "what was read of the environment differs, so the first entry stays"


def test_a_run_for_timelines_takes_the_place_of_the_entry_without(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "cache"
    for answer in (ANSWER, WITH_TIMELINES, ANSWER):
        Cache(folder).keep(JOB, PROFILES, answer, reads(model))
    assert sorted(path.suffix for path in folder.rglob("*.*")) == [".gz", ".json"]
    assert Cache(folder).find(JOB, PROFILES, timelines=True) == WITH_TIMELINES


def cut(content: bytes) -> bytes:
    return content[:-9]


@pytest.mark.parametrize(
    ("text", "damage"),
    [(b"[null, null]", cut), (b"[null, null]", gzip.decompress), (b"5", bytes), (b"[{}, null]", bytes),
     (b"[null]", bytes), (b"[null, null]", lambda packed: b"")],
    ids=["cut off", "not packed", "no list", "no timeline", "one too few", "empty"],
)  # fmt: skip
def test_broken_timelines_are_a_miss_for_whom_they_matter(
    tmp_path: Path, model: Path, text: bytes, damage: Callable[[bytes], bytes]
) -> None:
    content = damage(gzip.compress(text))
    folder = tmp_path / "cache"
    Cache(folder).keep(JOB, PROFILES, WITH_TIMELINES, reads(model))
    (beside,) = folder.rglob("*.gz")
    beside.write_bytes(content)
    assert Cache(folder).find(JOB, PROFILES, timelines=True) is None
    assert Cache(folder).find(JOB, PROFILES) == ANSWER


def test_timelines_go_with_their_entry(folder: Path, model: Path) -> None:
    for width in range(2 * MOST_ENTRIES):
        model.write_text(f"width = {width}\n")
        Cache(folder).keep(JOB, PROFILES, WITH_TIMELINES, reads(model))
    names = [path.name.partition(".")[0] for path in (folder / key(JOB, PROFILES)).iterdir()]
    assert len(names) == 2 * MOST_ENTRIES == 2 * len({*names})
    os.utime(folder / key(JOB, PROFILES), (1, 1))
    Cache(folder).keep(replace(JOB, alloc_conf="expandable_segments:True"), PROFILES, ANSWER, reads(model))
    assert not (folder / key(JOB, PROFILES)).exists()
