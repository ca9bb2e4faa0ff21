"""``tiktoken``, whose encodings are downloaded: each has its size, and makes a token of each word."""

import importlib.machinery
import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.errors import EstimateError

_ENCODINGS = {
    "gpt2": (50257, 50256),
    "r50k_base": (50257, 50256),
    "p50k_base": (50281, 50256),
    "cl100k_base": (100277, 100257),
    "o200k_base": (200019, 199999),
}
"""Name → number of tokens, and which of them ends a text (tiktoken 0.12, ``tiktoken_ext/openai_public.py``)."""


class Encoding:
    """``tiktoken.Encoding``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_vocab, self.eot_token = _ENCODINGS[name]
        self.max_token_value = self.n_vocab - 1
        self.special_tokens_set = {"<|endoftext|>"}
        self._special_tokens = {"<|endoftext|>": self.eot_token}

    def encode(self, text: str, **_: Any) -> list[int]:
        """A token of each word, the same of the same."""
        return [zlib.crc32(word.encode()) % self.eot_token for word in re.findall(r"\S+", text)]

    encode_ordinary = encode

    def encode_batch(self, texts: Iterable[str], **_: Any) -> list[list[int]]:
        """Those of each text."""
        return [self.encode(text) for text in texts]

    encode_ordinary_batch = encode_batch

    def decode(self, tokens: Iterable[int], **_: Any) -> str:
        """A word for each token."""
        return " ".join("word" for _ in tokens)

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """The same."""
        return self.decode(tokens).encode()

    def decode_single_token_bytes(self, token: int) -> bytes:
        """Of one token."""
        return self.decode_bytes([token])

    def encode_single_token(self, text: str) -> int:
        """One token."""
        return self._special_tokens.get(text) or self.encode(text or "word")[0]


class _Loader:
    def __init__(self, assume: Callable[[str], None]) -> None:
        self._assume = assume

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return TiktokenModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_encodings(self._assume), Encoding=Encoding)


def _encodings(assume: Callable[[str], None]) -> dict[str, Callable[..., Any]]:
    """The functions of the package that know encodings by name."""

    def get_encoding(name: str) -> Encoding:
        if name not in _ENCODINGS:
            raise EstimateError(f"tiktoken's encoding '{name}' is not known", hint=f"known: {', '.join(_ENCODINGS)}")
        assume(f"tiktoken's {name} is not downloaded: it makes a token of each word")
        return Encoding(name)

    def encoding_for_model(model: str) -> Encoding:
        if model.startswith(("gpt-4o", "gpt-4.1", "gpt-5", "o1", "o3", "o4")):
            return get_encoding("o200k_base")
        return get_encoding("gpt2" if model == "gpt2" else "cl100k_base")

    return {
        "get_encoding": get_encoding,
        "encoding_for_model": encoding_for_model,
        "list_encoding_names": lambda: list(_ENCODINGS),
    }


def installed(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """The installed package: it reads files of its user's (``tiktoken.load``), and downloads no encodings."""
    for name, function in _encodings(assume).items():
        stack.enter_context(mock.patch.object(module, name, function))


class TiktokenModule(ModuleType):
    """The stand-in of the package."""


def spec_of(name: str, assume: Callable[[str], None]) -> importlib.machinery.ModuleSpec:
    """Where an import finds the stand-in."""
    return importlib.machinery.ModuleSpec(name, _Loader(assume), is_package=True)  # type: ignore[arg-type]
