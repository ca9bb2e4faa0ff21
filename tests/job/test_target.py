"""Targets: four forms, read and written; everything else is a usage error that helps."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import ExitCode, UsageError
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget
from memplan.job.target import format_target, parse_target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(path: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("")
    return Path(path)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("model.py", FileTarget(path=Path("model.py"))),
        ("model.py:build", FileTarget(path=Path("model.py"), factory="build")),
        ("model.py::build", FileTarget(path=Path("model.py"), factory="build")),
        (" model.py ", FileTarget(path=Path("model.py"))),
        ("my.model.py:build", FileTarget(path=Path("my.model.py"), factory="build")),
        (r"C:\models\net.py", FileTarget(path=Path(r"C:\models\net.py"))),
        (r"C:\models\net.py:build", FileTarget(path=Path(r"C:\models\net.py"), factory="build")),
        ("package.module:build", ModuleTarget(module="package.module", factory="build")),
        ("module::build", ModuleTarget(module="module", factory="build")),
        ("hf:./llama", HubTarget(location="./llama")),
        (r"hf:C:\llama\config.json", HubTarget(location=r"C:\llama\config.json")),
        ("preset:llama-3.1-8b", PresetTarget(name="llama-3.1-8b")),
    ],
)
def test_forms(folder, text, target):
    for name in ("model.py", "my.model.py", r"C:\models\net.py"):
        touch(name)
    assert parse_target(text) == target
    assert parse_target(format_target(target)) == target


def test_missing_file_names_the_nearest(folder):
    touch("sub/model.py")
    touch("sub/train.py")
    with pytest.raises(UsageError) as caught:
        parse_target("sub/modle.py:build")
    assert caught.value.exit_code == ExitCode.USAGE == 2
    assert "sub/modle.py" in caught.value.what
    assert "sub/model.py" in (caught.value.hint or "")
    assert "train.py" not in (caught.value.hint or "")


def test_missing_folder_is_said(folder):
    with pytest.raises(UsageError) as caught:
        parse_target("nowhere/model.py")
    assert "no folder 'nowhere'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    ["", ":", "model", "package.module", "model.py:", "model.py:1", "a b:c", "x:y:z", "model.txt", "\0", "\0.py"],
)
def test_nonsense_is_a_usage_error(folder, text):
    touch("model.py.bak")
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert caught.value.hint


@pytest.mark.parametrize("form", ["model.py:factory", "package.module:factory", "hf:", "preset:"])
def test_nonsense_shows_the_four_forms(folder, form):
    with pytest.raises(UsageError) as caught:
        parse_target("what is this")
    assert form in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("gpt2", PresetTarget(name="gpt2")),
        ("Llama-3.1-8B", PresetTarget(name="Llama-3.1-8B")),
        ("llama", HubTarget(location="llama")),
        ("./llama", HubTarget(location="llama")),
        ("llama/config.json", HubTarget(location="llama/config.json")),
        ("meta-llama/Llama-3.1-8B", HubTarget(location="meta-llama/Llama-3.1-8B")),
    ],
)
def test_names_that_need_no_prefix(folder, text, target):
    touch("llama/config.json")
    assert parse_target(text) == target
    assert parse_target(format_target(target)) == target


def test_a_name_below_a_folder_is_no_name_of_the_hub(folder):
    touch("models/net.py")
    with pytest.raises(UsageError, match="not a target"):
        parse_target("models/nett")


@pytest.mark.parametrize("text", ["hf:", "preset: "])
def test_empty_names(text):
    with pytest.raises(UsageError, match="names nothing"):
        parse_target(text)


def test_what_was_probably_meant(folder):
    touch("train.py")
    for text, meant in (("llama-3.1-8", "preset:llama-3.1-8b"), ("train", "train.py")):
        with pytest.raises(UsageError) as caught:
            parse_target(text)
        assert meant in (caught.value.hint or "")


def test_a_notebook_is_told_how_it_is_measured(folder):
    with pytest.raises(UsageError) as caught:
        parse_target("my notes.ipynb")
    assert "memplan.on(" in caught.value.hint
    assert "jupyter nbconvert --to script 'my notes.ipynb' && memplan estimate 'my notes.py'" in caught.value.hint


def test_directory_called_like_a_file(folder):
    (folder / "model.py").mkdir()
    with pytest.raises(UsageError):
        parse_target("model.py")


@given(st.one_of(st.text(), st.text(alphabet="ab.:py\\/hf "), st.text(min_size=300).map(lambda text: text + ".py")))
def test_any_text_is_a_target_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        target = parse_target(text)
        assert parse_target(format_target(target)) == target
