"""Every document that memplan exchanges, by name; each is imported when it is asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from memplan.contract.document import Document

WHERE: Final[Mapping[str, str]] = {
    "batch": "memplan.report.batch.json",
}
"""Name → the module whose ``DOCUMENT`` it is."""


def document(name: str) -> Document:
    """Return a document by its name."""
    found: Document = import_module(WHERE[name]).DOCUMENT
    return found
