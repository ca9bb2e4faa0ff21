"""One browser for all tests of a process."""

from tests.report.html.conftest import chromium

__all__ = ["chromium"]
