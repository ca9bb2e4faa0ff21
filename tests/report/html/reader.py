"""Reads a page as a browser would."""

import zlib
from base64 import b64decode
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """What stands in a page: text, attributes, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.content: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.content:
            self.content[self.open[-1]].append(data)
        else:
            self.text.append(data)

    @property
    def report(self) -> str:
        """The JSON that the page carries."""
        return zlib.decompress(b64decode(self.content["script"][0])).decode("utf-8")

    @property
    def policy(self) -> str:
        return next(
            value for tag, name, value in self.attributes if (tag, name) == ("meta", "content") and "src" in value
        )

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())
