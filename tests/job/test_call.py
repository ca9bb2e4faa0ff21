"""Calls on the command line: read as data, looked up, never evaluated."""

import sys
from types import ModuleType

import pytest

from memplan.errors import UsageError
from memplan.job.call import parse_call, resolve
from memplan.job.spec import FileTarget, ModuleTarget
from memplan.job.target import format_target, parse_target


class Config:
    """Keeps what it was given."""

    def __init__(self, *args: object, **keywords: object) -> None:
        self.args, self.keywords = args, keywords


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("far.away")
    module.Config, module.width, module.inner = Config, 7, ModuleType("inner")
    module.inner.Config = Config
    monkeypatch.setitem(sys.modules, "far", ModuleType("far"))
    monkeypatch.setitem(sys.modules, "far.away", module)
    return module


def test_literals_names_and_calls(here: ModuleType) -> None:
    made = resolve(
        parse_call("Config(-1, 'a:b', [1, (2.5, None)], {'k': True}, width, c=Config(n=inner.Config()))"), here
    )
    assert made.args == (-1, "a:b", [1, (2.5, None)], {"k": True}, 7)
    assert isinstance(made.keywords["c"].keywords["n"], Config)


def test_a_call_in_another_module(here: ModuleType) -> None:
    made = resolve(parse_call("Config(config=far.away:Config(n_layer=12))"), here)
    assert made.keywords["config"].keywords == {"n_layer": 12}


@pytest.mark.parametrize(
    "text",
    ["Net(1 + x)", "Net(__import__('os').system('true'))", "Net(x for x in y)", "Net(lambda: 1)", "Net(*a)", "Net(**a)",
     "Net(", "Net()()", "3", "Net(f'{x}')", "Net(a[0])"],
)  # fmt: skip
def test_what_would_have_to_be_evaluated_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no name and no call"):
        parse_call(text)


def test_a_name_that_is_nowhere(here: ModuleType) -> None:
    with pytest.raises(UsageError, match="has no 'Absent'"):
        resolve(parse_call("Config(Absent())"), here)


@pytest.mark.parametrize("text", ["far.away:Config(config=far.away:Config(n=1))", "far.away:Config", "a.b:c('x.py:y')"])
def test_targets_of_modules_are_written_as_typed(text: str) -> None:
    target = parse_target(text)
    assert isinstance(target, ModuleTarget)
    assert format_target(target) == text


def test_a_call_of_a_file(tmp_path) -> None:
    (tmp_path / "net.py").write_text("")
    target = parse_target("net.py:Net(path='other.py', config=conf:Config())", tmp_path)
    assert target == FileTarget(path=tmp_path / "net.py", factory="Net(path='other.py', config=conf:Config())")
