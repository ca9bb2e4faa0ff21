"""What a library lacks is an error that says so, never a figure; everything is put back as it was."""

import types
from typing import Any

import pytest

from memplan.errors import ExitCode
from memplan.seam import replace
from memplan.seam.patch import Patch, patches
from memplan.seam.patches import PATCHES
from memplan.seam.replace import Replacement, SeamError, attribute, replaced

HERE = "memplan.versions"
"""A module that these tests replace names of; it stands for a library."""


def listed(monkeypatch: pytest.MonkeyPatch, name: str, **options: Any) -> str:
    (patch,) = patches(HERE, name, why="this test runs", source="none", since="0.1", **options)
    monkeypatch.setitem(PATCHES, patch.path, patch)
    return patch.path


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

    (patch,) = patches("library.*", "inherited", why="", source="")
    monkeypatch.setitem(PATCHES, patch.path, patch)
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
        assert replace.imported(HERE) is not None
        assert not hasattr(replace.imported(HERE), "renamed")


def test_a_name_younger_than_the_installed_release_is_left_out() -> None:
    young = Patch(owner="torch", name="x", since="99.0", why="", source="")
    assert not replace.is_expected(young)
    assert replace.is_expected(Patch(owner="torch", name="x", since="2.6", why="", source=""))


def test_what_a_replacement_calls_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SeamError):
        attribute(listed(monkeypatch, "renamed"))


def test_a_module_is_found_before_the_attribute_of_its_name() -> None:
    assert isinstance(replace.imported("torch._higher_order_ops.flex_attention"), types.ModuleType)


def test_every_patch_of_torch_is_there_or_not_expected() -> None:
    of_torch = [patch for patch in PATCHES.values() if patch.package == "torch" and "*" not in patch.path]
    lost = []
    for patch in of_torch:
        owner = replace.imported(patch.owner)
        if patch.required and replace.is_expected(patch) and (owner is None or not hasattr(owner, patch.name)):
            lost.append(patch.path)
    assert len(of_torch) > 100
    assert lost == []


def test_every_patch_says_why_and_where() -> None:
    assert [patch.path for patch in PATCHES.values() if not patch.why or not patch.source] == []
