"""HiGHS without its first words: highspy 1.16 prints who made it before anybody can set an option."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def quiet_highs() -> Iterator[None]:
    """Let solvers that are made in the context, by pulp too, print nothing."""
    import highspy

    class Quiet(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name, for the first thing that it does.
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]

    with mock.patch.object(highspy, "Highs", Quiet):
        yield
