"""Laws held on drawn examples: on few in every run, on all of them in the slow one."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy


def swept(
    *, quick: int, full: int, suppress: Iterable[HealthCheck] = (), **drawn: SearchStrategy[object]
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Make a test of a law.

    Args:
        quick: Examples in a default run.
        full: Examples in the slow run.
        suppress: What hypothesis is not to complain of.
        drawn: What the law takes, and where it is drawn from.

    Returns:
        A decorator. The law takes nothing but what is drawn.
    """

    def test_of(law: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [quick, pytest.param(full, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples, suppress_health_check=list(suppress))(given(**drawn)(law))()

        test.__name__, test.__qualname__ = law.__name__, law.__qualname__
        test.__module__, test.__doc__ = law.__module__, law.__doc__
        return test

    return test_of
