"""What a library lacks is an error that says so, never a figure; everything is put back as it was."""

import ast
import contextlib
import importlib
import inspect
import types
from pathlib import Path
from typing import Any

import pytest

from memplan.errors import ExitCode
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.seam import find, pytree
from memplan.seam.find import SeamError
from memplan.seam.patch import Patch, patch, patches, used
from memplan.seam.patches import PATCHES
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.seam.table import LENDERS, ROWS
from memplan.tracing import late_imports

HERE = "memplan.versions"
"""A module that these tests replace names of; it stands for a library."""


def listed(monkeypatch: pytest.MonkeyPatch, name: str, **options: Any) -> str:
    (row,) = patches(HERE, name, why="this test runs", source="none", since="0.1", **options)
    monkeypatch.setitem(PATCHES, row.path, row)
    return row.path


def test_a_value_stands_there_for_the_length_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(monkeypatch, "installed")
    former = attribute(path)
    with replaced([Replacement(path, "other")]):
        assert attribute(path) == "other"
    assert attribute(path) is former


def test_what_is_replaced_twice_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(monkeypatch, "installed")
    former = attribute(path)
    with pytest.raises(ValueError, match="stop"), replaced([Replacement(path, 1), Replacement(path, 2)]):
        raise ValueError("stop")
    assert attribute(path) is former


def test_static_methods_and_inherited_attributes_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        @staticmethod
        def helper() -> int:
            return 1

        inherited = 1

    class Derived(Base): ...

    (row,) = patches("library.*", "inherited", why="", source="")
    monkeypatch.setitem(PATCHES, row.path, row)
    (static,) = patches("library.*", "helper", why="", source="")
    monkeypatch.setitem(PATCHES, static.path, static)
    with replaced([Replacement("library.*.inherited", 2, Derived), Replacement("library.*.helper", len, Base)]):
        assert (Derived.inherited, Base.inherited) == (2, 1)
    assert "inherited" not in vars(Derived)
    assert isinstance(vars(Base)["helper"], staticmethod)


def test_a_missing_required_name_is_an_error_without_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(monkeypatch, "renamed")
    with pytest.raises(SeamError) as caught, replaced([Replacement(path, 1)]):
        pass
    assert caught.value.exit_code is ExitCode.UNKNOWN
    assert f"has no {path}" in str(caught.value)
    assert "this test runs" in str(caught.value)
    assert "or a newer memplan" in str(caught.value)


def test_nothing_stays_replaced_after_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    there, renamed = listed(monkeypatch, "installed"), listed(monkeypatch, "renamed")
    former = attribute(there)
    with pytest.raises(SeamError), replaced([Replacement(there, 1), Replacement(renamed, 1)]):
        pass
    assert attribute(there) is former


@pytest.mark.parametrize("options", [{"required": False}, {"until": "0.1"}])
def test_a_name_that_need_not_be_there_is_left_out(monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    path = listed(monkeypatch, "renamed", **options)
    with replaced([Replacement(path, 1)]):
        assert find.imported(HERE) is not None
        assert not hasattr(find.imported(HERE), "renamed")


def test_a_name_younger_than_the_installed_release_is_left_out() -> None:
    young = Patch(owner="torch", name="x", since="99.0", why="", source="")
    assert not find.is_expected(young)
    assert find.is_expected(Patch(owner="torch", name="x", since="2.6", why="", source=""))


def test_what_a_replacement_calls_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SeamError):
        attribute(listed(monkeypatch, "renamed"))


def test_a_module_is_found_before_the_attribute_of_its_name() -> None:
    assert isinstance(find.imported("torch._higher_order_ops.flex_attention"), types.ModuleType)


def test_every_name_of_torch_is_there_or_not_expected() -> None:
    of_torch = [row for row in ROWS if row.package == "torch" and "*" not in row.path]
    assert len(of_torch) > 200
    assert [row.path for row in of_torch if find.is_lost(row)] == []


def test_every_row_says_why_and_where() -> None:
    assert [row.path for row in ROWS if not row.why or not row.source] == []


def test_what_is_lent_is_what_type_checkers_are_told() -> None:
    for lender in LENDERS:
        (block,) = (node for node in ast.parse(inspect.getsource(lender)).body if isinstance(node, ast.If))
        told = {
            alias.asname or alias.name
            for node in block.body
            if isinstance(node, ast.ImportFrom) and node.module not in {"collections.abc", "types"}
            for alias in node.names
        } | {node.target.id for node in block.body if isinstance(node, ast.AnnAssign)}
        assert told == {row.name.lstrip("_") for row in lender.USED}, lender.__name__


def test_a_missing_used_name_is_an_error_that_says_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "has", lambda owner, name: name != "tree_map" and hasattr(owner, name))
    assert pytree.tree_leaves([1]) == [1]
    with pytest.raises(SeamError, match=r"has no torch\.utils\._pytree\.tree_map, which memplan uses") as caught:
        importlib.import_module("memplan.seam.pytree").tree_map  # noqa: B018
    assert caught.value.exit_code is ExitCode.UNKNOWN
    with pytest.raises(ImportError):
        exec("from memplan.seam.pytree import tree_nothing")


def test_a_name_that_need_not_be_there_is_none() -> None:
    (row,) = used("memplan.versions", "renamed", why="this test runs", required=False)
    assert find.lent([row])("renamed") is None


def test_what_is_added_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    row = patch(f"{HERE}.added", why="this test runs", source="none", added=True)
    monkeypatch.setitem(PATCHES, row.path, row)
    with replaced([Replacement(row.path, 1)]):
        assert find.imported(HERE).added == 1
    assert not hasattr(find.imported(HERE), "added")


def test_a_loss_that_other_code_catches_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(monkeypatch, "no_such_name")
    with pytest.raises(SeamError, match="no_such_name"), find.no_loss_is_hidden(), contextlib.suppress(Exception):
        attribute(path)
    with find.no_loss_is_hidden():
        pass


def test_an_estimate_does_not_hide_a_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = listed(monkeypatch, "no_such_name")
    monkeypatch.setattr(late_imports, "lost_here", lambda: attribute(path), raising=False)
    (tmp_path / "net.py").write_text(
        "import torch\nfrom memplan.tracing import late_imports\n"
        "class Net(torch.nn.Linear):\n    def forward(self, x):\n        try:\n            late_imports.lost_here()\n"
        "        except Exception:\n            pass\n        return super().forward(x)\n"
        "def model():\n    return Net(4, 4)\ndef batch(batch_size):\n    return torch.randn(batch_size, 4)\n"
        "def loss(output, batch):\n    return output.mean()\n"
    )
    spec = JobSpec(target=FileTarget(path=tmp_path / "net.py"))
    with pytest.raises(SeamError, match="no_such_name"):
        estimate_here(spec, [load_profile("t4")], advice=False)
