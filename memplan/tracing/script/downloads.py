"""Files that a program downloads by itself: well-known ones have stand-ins of their form, others are refused."""

import gzip
import io
import re
import string
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from email.message import Message
from itertools import cycle, islice
from types import ModuleType
from typing import Any
from unittest import mock

Assume = Callable[[str], None]


def of_urllib(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let ``urllib.request`` find what is known, which pandas and NumPy ask as well."""
    real = module.OpenerDirector.open

    def open_(opener: Any, fullurl: Any, *args: Any, **kwargs: Any) -> Any:
        url = fullurl if isinstance(fullurl, str) else fullurl.full_url
        if not url.startswith("http"):
            return real(opener, fullurl, *args, **kwargs)
        from urllib.response import addinfourl

        data, headers = content(url, assume), Message()
        headers["Content-Length"] = str(len(data))
        return addinfourl(io.BytesIO(data), headers, url, 200)

    stack.enter_context(mock.patch.object(module.OpenerDirector, "open", open_))


def of_requests(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let ``requests`` find what is known."""

    def request(_: Any, method: str, url: str, *__: Any, **___: Any) -> Any:
        del method
        data, response = content(url, assume), module.Response()
        response.status_code, response.url, response.reason = 200, url, "OK"
        response.headers["Content-Length"] = str(len(data))
        response.raw = io.BytesIO(data)
        response.encoding = "utf-8"
        return response

    stack.enter_context(mock.patch.object(module.Session, "request", request))


def of_fsspec(module: ModuleType, stack: ExitStack, assume: Assume) -> None:
    """Let ``fsspec``'s files of the web find what is known."""

    def open_(_: Any, path: str, *__: Any, **___: Any) -> io.BytesIO:
        return io.BytesIO(content(path, assume))

    stack.enter_context(mock.patch.object(module.HTTPFileSystem, "_open", open_))


def content(url: str, assume: Assume) -> bytes:
    """Return what stands for the file of an address.

    Raises:
        PermissionError: Nobody knows what it holds.
    """
    for pattern, (what, make) in _KNOWN.items():
        if re.search(pattern, url):
            assume(f"{url.rpartition('/')[2]} is not downloaded: {what} stands in for it")
            return make()
    assume(f"the program's download of {url} was refused")
    raise PermissionError(f"downloading {url} is not allowed while memplan runs the program: download it once, to where"
                          " the program looks for it")  # fmt: skip


def _words(tokens: int, vocabulary: int, lines: int) -> bytes:
    """Text of so many words and ends of line, of which so many are different (an end of line is one)."""
    words = islice(cycle(f"w{index}" for index in range(vocabulary - 1)), tokens - lines)
    length = (tokens - lines) // lines
    text = [" ".join(islice(words, length)) for _ in range(lines - 1)]
    return "\n".join((*text, " ".join(words), "")).encode()


def _characters(count: int, different: int) -> bytes:
    """Text of so many characters of so many kinds."""
    alphabet = "\n" + "".join(chr(code) for code in range(32, 32 + different - 1))
    return "".join(islice(cycle(alphabet), count)).encode()


def _prose(lines: int, different: int) -> bytes:
    """Lines of ten words, of which so many are different, in 65 kinds of characters as tiny Shakespeare has."""
    letters, ends = string.ascii_letters, cycle(".,;:!?'-&3$")
    words = cycle(letters[i % 52] + letters[i // 52 % 52] + letters[i // 52**2] for i in range(different))
    return "".join(" ".join(islice(words, 10)) + next(ends) + "\n" for _ in range(lines)).encode()


def _table(rows: int, numbers: int, labels: tuple[str, ...] = (), separator: str = ",", head: str = "") -> bytes:
    """Rows of numbers, each with one of the labels behind them."""
    lines = [
        separator.join(
            (*(str(row % 7 + column) for column in range(numbers)), *(labels and [labels[row % len(labels)]]))
        )
        for row in range(rows)
    ]
    return "\n".join(([head] if head else []) + lines + [""]).encode()


def _cora() -> bytes:
    """Papers with the words that are in them, and which cites which."""
    papers, words, links = 2_708, 1_433, 5_429
    labels = ("Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods", "Reinforcement_Learning",
              "Rule_Learning", "Theory")  # fmt: skip
    rows = [
        "\t".join((str(row), *("01"[(row + word) % 80 == 0] for word in range(words)), labels[row % 7]))
        for row in range(papers)
    ]
    cites = [f"{link % papers}\t{(link * 31 + 1 + link // papers) % papers}" for link in range(links)]
    files = {"cora/cora.content": rows, "cora/cora.cites": cites}
    packed = io.BytesIO()
    with tarfile.TarFile(fileobj=packed, mode="w") as archive:
        for name, lines in files.items():
            data = "\n".join((*lines, "")).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), 1)


_WINE = ('"fixed acidity";"volatile acidity";"citric acid";"residual sugar";"chlorides";"free sulfur dioxide";'
         '"total sulfur dioxide";"density";"pH";"sulphates";"alcohol";"quality"')  # fmt: skip
_IRIS = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
_KNOWN: dict[str, tuple[str, Callable[[], bytes]]] = {
    r"wikitext-2/(wiki\.)?train\.t": ("as many words, 33,278 different", lambda: _words(2_088_628, 33_278, 36_718)),
    r"wikitext-2/(wiki\.)?valid\.t": ("text of as many words", lambda: _words(217_646, 33_278, 3_760)),
    r"wikitext-2/(wiki\.)?test\.t": ("text of as many words", lambda: _words(245_569, 33_278, 4_358)),
    r"shakespeare.*/input\.txt$": ("text of 1,115,394 characters of 65 kinds", lambda: _characters(1_115_394, 65)),
    r"/cora\.tgz$": ("2,708 papers of 1,433 words, 7 classes and 5,429 links", _cora),
    r"/iris\.(data|csv)$": ("150 rows of 4 numbers and 3 classes", lambda: _table(150, 4, _IRIS)),
    r"pima-indians-diabetes.*\.csv$": ("768 rows of 8 numbers and 2 classes", lambda: _table(768, 8, ("0", "1"))),
    r"winequality-red\.csv$": ("1,599 rows of 12 numbers", lambda: _table(1_599, 12, (), ";", _WINE)),
    r"winequality-white\.csv$": ("4,898 rows of 12 numbers", lambda: _table(4_898, 12, (), ";", _WINE)),
    r"\.txt$": ("text of 200,000 words, 10,000 different, in 65 kinds of characters", lambda: _prose(20_000, 10_000)),
}  # fmt: skip
"""Address → what the file holds by its own page, and its stand-in: WikiText-2 (Merity et al. 2016, table 1; lines of
pytorch/examples), tiny Shakespeare (nanoGPT's data/shakespeare_char/readme.md), Cora (LINQS), archive.ics.uci.edu. Of
any other text nobody knows the words: as many as in tiny Shakespeare, roughly."""
