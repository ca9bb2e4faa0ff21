"""What holds for every test."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from memplan.job import isolate
from tests.support.command import Command
from tests.support.forked_child import ForkedChild

# No test is timed: a busy machine must not turn a law into a failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_FRESH = isolate._start


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """Children of ``run_isolated`` begin with torch imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolate, "_start", ForkedChild)
        yield


@pytest.fixture
def fresh_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of ``run_isolated`` begin with nothing, as they do for users."""
    monkeypatch.setattr(isolate, "_start", _FRESH)


@pytest.fixture
def memplan(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""
    return Command(captured=capfd)
