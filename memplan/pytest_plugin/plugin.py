"""The hooks. Only what pytest has already imported is imported here at module level (a test looks).

marker ──► limits ──► estimates, before the test's body or where it asks ──► figures, on the report ──► summary, cache
Figures travel on reports, so that with pytest-xdist the controller alone writes them.
"""

from collections.abc import Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from memplan.measure.cache import Cache
    from memplan.pytest_plugin.estimates import Estimates
    from memplan.pytest_plugin.records import MarkerLimit

MARKER = "limit_gpu_memory"
FIXTURE = "memplan_estimate"
PREVIOUS = "memplan/figures"
"""Key of pytest's cache: test → bytes of the device peak."""
_ON_REPORT = "memplan_figures"
_ESTIMATES: "pytest.StashKey[Estimates]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all of which begin with ``--memplan``."""
    group = parser.getgroup("memplan", "predicted GPU memory")
    group.addoption(
        "--memplan-fail-on-increase",
        action="store_true",
        help="Fail tests whose estimates are larger than in the last run with this option (kept in pytest's cache).",
    )
    group.addoption(
        "--memplan-accept-increase",
        action="store_true",
        help="Keep the figures of this run for --memplan-fail-on-increase, larger ones too.",
    )
    group.addoption("--memplan-no-cache", action="store_true", help="Make every estimate anew.")
    # No option: pytest would take the folder for one of tests when it looks for its root.
    parser.addini("memplan_cache_dir", "Where estimates are kept; begins at the root (the user's cache).", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and refuse what cannot be done."""
    config.addinivalue_line(
        "markers",
        f'{MARKER}(limit, *, gpu, target=None, **options): fail where memplan predicts more, "70 GiB"; without a '
        f"target for every estimate of the fixture {FIXTURE}.",
    )
    if _keeps(config) and getattr(config, "cache", None) is None:
        raise pytest.UsageError("--memplan-fail-on-increase needs pytest's cache, which -p no:cacheprovider turns off")
    config.pluginmanager.register(_Session(config), "memplan-session")


@pytest.fixture
def memplan_estimate(request: pytest.FixtureRequest) -> "Estimates":
    """Estimate a target: ``memplan_estimate("train.py:model", gpu="h100-80g", batch_size=8)``; the marker limits it."""
    estimates: Estimates = request.node.stash[_ESTIMATES]
    return estimates


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Read the markers of a test: one that is wrong is an error, no failure."""
    markers = list(item.iter_markers(MARKER))
    if not markers and FIXTURE not in getattr(item, "fixturenames", ()):
        return
    from memplan.errors import MemplanError
    from memplan.project.find import from_here
    from memplan.pytest_plugin.estimates import Estimates
    from memplan.pytest_plugin.records import read_marker

    config = item.config
    # Relative paths begin at the root; options are said to come from the test's file.
    file = from_here(config.rootpath / item.path.name)
    try:
        limits = _nearest([read_marker(marker.args, marker.kwargs, file) for marker in markers])
    except MemplanError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    fails = bool(config.getoption("memplan_fail_on_increase"))
    item.stash[_ESTIMATES] = Estimates(
        test=item.nodeid,
        file=file,
        limits=limits,
        cache=_open_cache(config),
        previous=_previous(config) if _keeps(config) else {},
        fail_on_increase=fails and not config.getoption("memplan_accept_increase"),
    )


def _open_cache(config: pytest.Config) -> "Cache | None":
    from memplan.measure.cache import Cache, default_folder

    if config.getoption("memplan_no_cache"):
        return None
    named = config.getini("memplan_cache_dir")
    return Cache(config.rootpath / named if named else default_folder())


def _nearest(limits: "list[MarkerLimit]") -> "list[MarkerLimit]":
    """One for each GPU and target: the marker of a test stands above that of its class or module."""
    found: dict[tuple[str | None, str], MarkerLimit] = {}
    for limit in limits:
        found.setdefault((limit.gpu, repr(limit.job.spec.target) if limit.job else ""), limit)
    return list(found.values())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Make the estimates that markers ask for, then run the test."""
    estimates = item.stash.get(_ESTIMATES, None)
    if estimates is None:
        return (yield)
    from memplan.errors import MemplanError
    from memplan.pytest_plugin.estimates import OverLimitError

    try:
        estimates.of_markers()
        return (yield)
    except (OverLimitError, MemplanError) as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the figures on the report of the test's call, which is what travels to the controller."""
    report = yield
    estimates = item.stash.get(_ESTIMATES, None)
    if estimates is not None and report.when == "call":
        setattr(report, _ON_REPORT, [asdict(figure) for figure in estimates.figures])
    return report


class _Session:
    """What concerns all tests: what they estimated, and what later runs are compared with."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._figures: dict[str, list[dict[str, Any]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a test estimated."""
        if figures := getattr(report, _ON_REPORT, None):
            self._figures[report.nodeid] = figures

    def pytest_sessionfinish(self) -> None:
        """Keep the figures; one that grew stays what it was until it is accepted."""
        config = self._config
        if hasattr(config, "workerinput") or not _keeps(config) or not self._figures:
            return
        kept = _previous(config)
        for each in (each for figures in self._figures.values() for each in figures):
            grew = each["previous_bytes"] is not None and each["device_bytes"] > each["previous_bytes"]
            if not grew or config.getoption("memplan_accept_increase"):
                kept[each["key"]] = each["device_bytes"]
        _cache(config).set(PREVIOUS, kept)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was estimated."""
        if not self._figures:
            return
        from memplan.pytest_plugin.records import Figure
        from memplan.pytest_plugin.words import summary_lines

        found = [Figure(**each) for figures in self._figures.values() for each in figures]
        terminalreporter.section("predicted GPU memory")
        for line in summary_lines(found):
            terminalreporter.line(line)


def _keeps(config: pytest.Config) -> bool:
    return bool(config.getoption("memplan_fail_on_increase") or config.getoption("memplan_accept_increase"))


def _cache(config: pytest.Config) -> pytest.Cache:
    assert config.cache is not None  # noqa: S101 - looked at in pytest_configure.
    return config.cache


def _previous(config: pytest.Config) -> dict[str, int]:
    found = _cache(config).get(PREVIOUS, {})
    return dict(found) if isinstance(found, dict) else {}
