"""The same job asked again: nothing runs where nothing has changed, and no figure depends on it."""

import json
import os
import py_compile
from pathlib import Path
from typing import Any

import pytest

from memplan.measure import compose
from tests.support.command import Command

TARGET = """
import torch

def model():
    with open("runs", "a") as file:
        file.write("x")
    return torch.nn.Linear(64, 64)

def batch(batch_size):
    return torch.randn(batch_size, 64)

def loss(output, batch):
    return output.square().mean()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TARGET)
    return tmp_path


def asked(memplan: Command, *words: str) -> dict[str, Any]:
    done = memplan("estimate", "net.py", "--json", "-q", *words, folder=Path())
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


def test_asked_again_nothing_runs_and_the_answer_is_the_same_to_the_byte(
    folder: Path, memplan: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asked(memplan, "--gpu", "a100-40g")
    with monkeypatch.context() as patch:
        patch.setattr(compose, "run_isolated", lambda *_, **__: pytest.fail("a process was started"))
        assert json.dumps(asked(memplan, "--gpu", "a100-40g")) == json.dumps(first)
    assert runs(folder) == 1


def test_another_gpu_of_the_same_traits_another_allocator_and_a_page_need_no_process(
    folder: Path, memplan: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asked(memplan, "--gpu", "a100-40g")
    for words in (("a100-80g",), ("a100-40g", "--alloc-conf", "expandable_segments:True"), ("a100-40g", "--timeline")):
        with monkeypatch.context() as patch:
            patch.setattr(compose, "run_isolated", lambda *_, **__: pytest.fail("a process was started"))
            found = asked(memplan, "--gpu", *words)
        assert found["timings"]["trace_seconds"] == first["timings"]["trace_seconds"]
        fresh = asked(memplan, "--gpu", *words, "--cache-dir", str(tmp_path / "other"))
        for content in (found, fresh):
            del content["timings"]
        assert json.dumps(found) == json.dumps(fresh)
        (tmp_path / "runs").write_text("x")


def test_an_answer_from_a_kept_trace_rests_on_what_the_trace_has_read(folder: Path, memplan: Command) -> None:
    """What found a trace has run nothing of the user's; its own answer must not outlive the model's file."""
    for gpu in ("a100-40g", "a100-80g"):
        asked(memplan, "--gpu", gpu)
    (folder / "net.py").write_text(TARGET.replace("Linear(64, 64)", "Linear(64, 32)"))
    assert asked(memplan, "--gpu", "a100-80g")["model"]["parameters"] == 64 * 32 + 32
    assert runs(folder) == 2


def test_a_target_rewritten_within_a_second_is_not_answered_from_its_compiled_file(
    folder: Path, memplan: Command
) -> None:
    """Same size and same date: Python itself would take the former target's compiled file for the new one's."""
    target = folder / "net.py"
    written = target.stat()
    asked(memplan, "--gpu", "a100-40g")
    py_compile.compile(str(target), doraise=True)
    target.write_text(TARGET.replace("Linear(64, 64)", "Linear(64, 32)"))
    os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert asked(memplan, "--gpu", "a100-40g")["model"]["parameters"] == 64 * 32 + 32


def test_another_kind_of_device_and_no_cache_trace_anew(folder: Path, memplan: Command) -> None:
    for count, words in enumerate((("a100-40g",), ("t4",), ("a100-40g", "--no-cache"), ("t4",)), start=1):
        asked(memplan, "--gpu", *words)
        assert runs(folder) == min(count, 3)


@pytest.mark.slow  # Children that begin with nothing: what a forked server has imported, nobody reads again.
@pytest.mark.usefixtures("fresh_children")
@pytest.mark.parametrize("words", [
    ("batch", "net.py", "--gpu", "t4"), ("simulate", "net.py", "--gpu", "t4", "--steps", "3"),
    ("reuse-plan", "net.py", "--gpu", "t4", "--time-limit", "1"),
], ids=lambda words: words[0])  # fmt: skip
def test_other_commands_find_traces_too(folder: Path, memplan: Command, words: tuple[str, ...]) -> None:
    first = memplan(*words, "--json", "-q", folder=folder)
    assert first.returncode == 0, first.stderr
    traced = runs(folder)
    again = memplan(*words, "--json", "-q", folder=folder)
    assert runs(folder) == traced
    assert _without_seconds(json.loads(again.stdout)) == _without_seconds(json.loads(first.stdout))
    memplan(*words, "--json", "-q", "--no-cache", folder=folder)
    assert runs(folder) == 2 * traced


def _without_seconds(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_seconds(value) for name, value in content.items() if not name.endswith("seconds")}
    return [_without_seconds(value) for value in content] if isinstance(content, list) else content
