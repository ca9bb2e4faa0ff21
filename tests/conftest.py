"""What holds for every test."""

import gc
import os
import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from memplan.job import isolate
from memplan.tracing.cuda.release import VARIABLE, since
from memplan.tracing.world import start_autograd
from tests.support.command import Command
from tests.support.forked_child import ForkedChild
from tests.support.libraries import Library

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# No test is timed: a busy machine must not turn a law into a failure. Each run draws anew, so that many short searches
# find what one long search does: a law that does not name its number of examples takes 40 instead of 100.
settings.register_profile("short", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("short")

# pytest-xdist gives its workers a width; messages would then be broken between words, as on a terminal.
os.environ.pop("COLUMNS", None)

_FRESH = isolate._start
_SMALL = 200_000
"""Objects: less than torch alone brings, more than any test leaves."""


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """Children of ``run_isolated`` begin with torch imported, and before any test's own fake mode, as fresh ones do."""
    start_autograd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolate, "_start", ForkedChild)
        yield


@pytest.fixture(scope="module", autouse=True)
def libraries(request: pytest.FixtureRequest) -> None:
    """What a module's tests need is imported before its first one, outside of every trace."""
    for value in vars(request.module).values():
        if isinstance(value, Library):
            value.load()


@pytest.fixture(scope="module")
def workspaces_stay() -> Iterator[None]:
    """Traces are as of the last release of torch whose cuBLAS keeps its work spaces, where a newer one is at hand."""
    with pytest.MonkeyPatch.context() as patch:
        if since("2.15"):
            patch.setenv(VARIABLE, "2.14.1")
        yield


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found that another test measured, nor what whoever runs the tests did."""
    monkeypatch.setenv("MEMPLAN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / f"cache-{secrets.token_hex(8)}"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting tests imports torch and makes no garbage: the collector would walk a growing heap for nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def small_heap() -> None:
    """The garbage collector walks what the test itself makes, and is on.

    Each fake world begins with a collection, which would walk all that was ever imported: a second of processor time in
    a whole run, more than the trace. What an earlier test left is collected first, unless that test gave the frozen
    heap back: then it is frozen with the rest.
    """
    gc.enable()  # Functions of child processes switch it off for good; some tests call them in this process.
    if len(gc.get_objects()) < _SMALL:
        gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_mode_left() -> Iterator[None]:
    """No test hands the next one a thread on which torch looks for a mode that is gone: every real op would fail.

    What ends inside of a mode and began outside of it leaves such a thread, or the reverse: a generator that waits in
    ``torch.inference_mode()``.
    """
    yield
    torch = sys.modules.get("torch")
    if torch is None or torch._C._len_torch_dispatch_stack():
        return
    keys = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)
    left = [key for key in keys if torch._C._dispatch_tls_is_dispatch_key_included(key)]
    for key in left:
        torch._C._dispatch_tls_set_dispatch_key_included(key, False)
    assert not left


@pytest.fixture
def fresh_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of ``run_isolated`` begin with nothing, as they do for users."""
    monkeypatch.setattr(isolate, "_start", _FRESH)


@pytest.fixture
def memplan(capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""
    return Command(captured=capfd)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """A file's tests run in one worker, so that what they share is made once."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - not every run has it.

    return LoadFileScheduling(config, log)
