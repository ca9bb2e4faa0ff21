"""Is a report of the gate what its format says? A short look at each, with readers that are none of memplan's."""

import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

_METRIC = re.compile(r'[a-z_]+(\{(\w+="([^"\\]|\\.)*",?)*\})? (-?[0-9.e+-]+|NaN|\+Inf)')
_ANNOTATION = re.compile(r"::(error|warning|notice|group|endgroup)( [^:]+)?::.*")


class _Page(HTMLParser):
    """Counts what a page opens, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags = 0
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        self.fetched += [value or "" for name, value in attrs if name == "src" or (tag == "link" and name == "href")]


def _json(text: str) -> bool:
    content = json.loads(text)
    return content["command"] == "gate" and bool(content["rows"])


def _markdown(text: str, most: int) -> bool:
    return "|" in text and len(text.encode()) < most


def _html(text: str) -> bool:
    page = _Page()
    page.feed(text)
    return text.lower().startswith("<!doctype html>") and page.tags > 20 and not any(
        re.match(r"(https?:)?//", each) for each in page.fetched
    )  # fmt: skip


def _github(text: str) -> bool:
    lines = [line for line in text.splitlines() if line]
    annotations = sum(line.startswith(("::error", "::warning", "::notice")) for line in lines)
    return all(_ANNOTATION.fullmatch(line) for line in lines) and annotations <= 10


def _gitlab(text: str) -> bool:
    keys = {"description", "check_name", "fingerprint", "severity", "location"}
    return all(keys <= issue.keys() for issue in json.loads(text))


def _sarif(text: str) -> bool:
    content = json.loads(text)
    return content["version"] == "2.1.0" and content["runs"][0]["tool"]["driver"]["name"] == "memplan"


def _junit(text: str) -> bool:
    return bool(list(ET.fromstring(text).iter("testcase")))


def _prometheus(text: str) -> bool:
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    return bool(samples) and all(_METRIC.fullmatch(line) for line in samples)


def _badge(text: str) -> bool:
    return {"schemaVersion", "label", "message", "color"} <= json.loads(text).keys()


FORMATS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "text": ("txt", lambda text: bool(text.strip())),
    "json": ("json", _json),
    "markdown": ("md", lambda text: _markdown(text, 2**20)),
    "comment": ("comment.md", lambda text: _markdown(text, 65_536)),
    "html": ("html", _html),
    "github": ("github", _github),
    "gitlab": ("codequality.json", _gitlab),
    "sarif": ("sarif", _sarif),
    "junit": ("xml", _junit),
    "prometheus": ("prom", _prometheus),
    "badge": ("badge.json", _badge),
}
"""Format → ending of its file, and whether a text is of it."""
MAY_BE_EMPTY = ("github",)
"""Where nothing is found there is nothing to annotate."""


def options(folder: Path) -> list[str]:
    """The words that ask for every format, each into a file of a folder."""
    return [word for name, (ending, _) in FORMATS.items() for word in ("-f", f"{name}={folder}/gate.{ending}")]


def written(folder: Path) -> list[str]:
    """The formats of which there is a file."""
    return [name for name, (ending, _) in FORMATS.items() if (folder / f"gate.{ending}").exists()]


def wrong(folder: Path) -> list[str]:
    """The formats that are missing, empty or something else."""
    return [name for name, (ending, is_valid) in FORMATS.items() if not _is_good(folder, name, ending, is_valid)]


def _is_good(folder: Path, name: str, ending: str, is_valid: Callable[[str], bool]) -> bool:
    try:
        text = (folder / f"gate.{ending}").read_text(encoding="utf-8")
        return is_valid(text) and (bool(text) or name in MAY_BE_EMPTY)
    except (OSError, ValueError, LookupError, TypeError, ET.ParseError):
        return False
