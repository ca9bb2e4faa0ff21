"""The innermost line that the user can change, and the words around it."""

import importlib
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from memplan.errors import EstimateError, UsageError
from memplan.job.usercode import explain, forgotten_modules, guarded, innermost, is_user_file, location, user_code

MINE = str(Path.cwd() / "mine.py")
TORCH = str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py")
LIBRARY = str(Path("/somewhere/lib/python3.11/site-packages/transformers/models/llama.py"))
STANDARD = str(Path(os.__file__).parent / "json" / "decoder.py")
MEMPLAN = str(Path(explain.__code__.co_filename))


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([(MEMPLAN, 1), (MINE, 2), (TORCH, 3), (MEMPLAN, 4), (TORCH, 5)], "mine.py:2"),
        ([(MINE, 2), (LIBRARY, 3), (TORCH, 4)], "mine.py:2"),
        ([(MINE, 2), (MINE, 9), (STANDARD, 3)], "mine.py:9"),
        ([(MEMPLAN, 1), (LIBRARY, 3), (TORCH, 4)], f"{LIBRARY}:3"),
        ([(MEMPLAN, 1), (TORCH, 4), ("<string>", 1), ("<frozen importlib._bootstrap>", 2)], None),
        ([], None),
    ],
)
def test_innermost_frame_of_the_user(frames, expected):
    assert innermost(frames) == expected


def test_only_own_files_are_the_users():
    assert is_user_file(MINE)
    assert not any(map(is_user_file, (TORCH, LIBRARY, STANDARD, MEMPLAN, "<string>")))


def test_a_call_into_the_standard_library_is_told_at_the_call():
    with pytest.raises(EstimateError) as caught, user_code("model()"):
        json.loads("{")
    assert caught.value.what.startswith("model() raised json.decoder.JSONDecodeError: Expecting property name")
    assert (caught.value.where or "").partition(":")[0].endswith("test_usercode.py")


def test_memplan_errors_and_interrupts_pass():
    for error in (UsageError("x"), EstimateError("y"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, user_code("model()"):
            raise error
        assert caught.value is error


def test_a_guarded_function_is_the_function():
    def area(width, height=2):
        """Width times height."""
        return width * height

    assert guarded(area, "area()")(3) == 6
    assert guarded(area, "area()").__doc__ == area.__doc__


def test_notes_are_shown_and_long_messages_are_cut():
    error = ValueError("x" * 10_000)
    assert len(explain(error, "model()").what) < 3000
    noted = ValueError("boom")
    noted.add_note("in layer 3")
    assert "boom\nin layer 3" in explain(noted, "model()").what


def test_an_exception_that_was_never_raised_has_no_place():
    assert location(ValueError()) is None


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (ModuleNotFoundError("No module named 'flash_attn'", name="flash_attn"), "--attention flash"),
        (ModuleNotFoundError("No module named 'flash_attn.bert_padding'", name="flash_attn.bert_padding"), "sdpa"),
        (ImportError("FlashAttention2 has been toggled on, but it cannot be used"), "--attention flash"),
        (ModuleNotFoundError("No module named 'xformers'", name="xformers"), "--attention efficient"),
        (ModuleNotFoundError("No module named 'einops'", name="einops"), "pip install einops"),
    ],
)
def test_a_missing_cuda_extension_comes_with_what_to_write_instead(error, part):
    hint = explain(error, "model()").hint
    assert hint is not None
    assert part in hint


def test_a_model_that_is_two_nets_comes_with_what_to_write():
    with pytest.raises(EstimateError) as caught, user_code("step 1"):
        torch.nn.ModuleDict()(1)
    assert "train_step(model, optimizer, batch)" in (caught.value.hint or "")
    with pytest.raises(EstimateError) as caught, user_code("optimizer()"):
        torch.nn.Linear(1, 1).parameters().generator  # noqa: B018 - what the file asks of a model.
    assert "not the model" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "line",
    [
        "from transformers import AdamW_of_old",
        "import transformers.modeling_of_old",
        "import transformers; transformers.AdamW_of_old",
        "from packaging.version import Version; Version('1', epoch_of_old=2)",
        "from packaging.version import Version; Version('1').part_of_old",
        "from packaging.version import Version as V\nclass Mine(V):\n    pass\nMine('1', epoch_of_old=2)",
    ],
)
def test_a_program_for_another_release_of_a_package_is_told_which(line, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    name = "packaging" if "packaging" in line else "transformers"
    (tmp_path / "INSTALL.md").write_text(f"pip install torch {name}==0.3.2 tensorboardX\n")
    (tmp_path / "train.py").write_text(line)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EstimateError) as caught, user_code("train.py"):
        exec(compile(line, str(tmp_path / "train.py"), "exec"), {})
    assert caught.value.hint is not None
    assert f"another release of {name} than the installed" in caught.value.hint
    assert f"pip install '{name}==0.3.2', as its INSTALL.md says" in caught.value.hint


def test_what_the_hub_has_is_fetched_by_its_user():
    errors = pytest.importorskip("huggingface_hub.errors")
    hint = explain(errors.LocalEntryNotFoundError("Cannot find an appropriate cached snapshot folder"), "x").hint
    assert hint is not None
    assert "hf download" in hint


def test_a_slip_of_the_pen_is_no_other_release(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EstimateError) as caught, user_code("train.py"):
        exec(compile("import torch; torch.ones(1).relue()", str(tmp_path / "train.py"), "exec"), {})
    assert "another release" not in (caught.value.hint or "")


def test_a_bare_assertion_is_told_by_what_it_asserts(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    file = tmp_path / "train.py"
    file.write_text("import transformers\nassert transformers.__version__ == '0.3.2'  # checked\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EstimateError) as caught, user_code("train.py"):
        exec(compile(file.read_text(), str(file), "exec"), {})
    assert caught.value.what.endswith("AssertionError: assert transformers.__version__ == '0.3.2'  # checked")
    assert "another release of transformers" in (caught.value.hint or "")
    with pytest.raises(EstimateError, match=r"AssertionError: four\n"), user_code("train.py"):
        raise AssertionError("four")


def test_a_module_that_nothing_imported_is_no_matter_of_releases(tmp_path, monkeypatch):
    (tmp_path / "house").mkdir()
    for file in ("__init__.py", "room.py"):
        (tmp_path / "house" / file).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EstimateError) as caught, user_code("train.py"):
        exec("import house; house.room", {})
    assert caught.value.hint == "house.room is a module that nothing has imported: import house.room"


def test_errors_of_the_programs_own_classes_blame_no_package():
    class Mine:
        pass

    for line in ("Mine(of_old=1)", "Mine.of_old", "[].of_old", "import json; json.of_old"):
        with pytest.raises(EstimateError) as caught, user_code("train.py"):
            exec(line, {"Mine": Mine})
        assert caught.value.hint is None


def test_namespace_packages_are_forgotten_with_the_packages_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer_of_user" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("")
    (inner / "leaf.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for value in (1, 2):
        (inner / "leaf.py").write_text(f"value = {value}\n#{'x' * value}\n")
        with forgotten_modules():
            assert importlib.import_module("outer_of_user.inner.leaf").value == value
        assert not [name for name in sys.modules if name.startswith("outer_of_user")]


@pytest.mark.parametrize(
    ("batch", "part"),
    [((torch.ones(2, 3), torch.ones(2)), "a tuple: take what it needs, as batch[1]"),
     ([torch.ones(2, 3), torch.ones(2)], "a list: take what it needs, as batch[1]"),
     ({"labels": torch.ones(2)}, "a dict: take what it needs, as batch['labels']")],
)  # fmt: skip
def test_a_loss_of_one_part_is_told_that_it_gets_all_parts(batch, part):
    def cross_entropy(output, target):
        return torch.nn.functional.cross_entropy(output, target)

    def of_its_own(output, target):
        return (output - target.float()).mean()

    for loss in (cross_entropy, of_its_own):
        with pytest.raises(EstimateError) as caught:
            guarded(loss, "loss()")(torch.ones(2, 3), batch)
        assert part in (caught.value.hint or "")
    with pytest.raises(EstimateError) as caught:
        guarded(cross_entropy, "loss()")(torch.ones(2, 3), torch.ones(5))
    assert caught.value.hint is None
