"""What a page may load: its own style and script, named by their hashes, and nothing else."""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any


def policy(*, styles: Sequence[str], scripts: Sequence[str] = (), connect: str = "") -> str:
    """A Content-Security-Policy that lets in these texts, by their hashes, and nothing else.

    ``connect`` is what scripts may ask for: ``'self'`` for the server that the page comes from.
    """
    kinds = (("style-src", styles), ("script-src", scripts))
    named = [f"{kind} {' '.join(_hash(text) for text in texts)}" for kind, texts in kinds if texts]
    if connect:
        named.append(f"connect-src {connect}")
    return "; ".join(["default-src 'none'", *named, "base-uri 'none'", "form-action 'none'"])


def embedded(document: Mapping[str, Any]) -> str:
    """JSON as a ninth as much text, which may stand inside of ``<script>``; ``unpacked`` of helpers.js reads it."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return b64encode(zlib.compress(text.encode("utf-8"), level=9)).decode("ascii")


def script(*parts: str) -> str:
    """One script of several files, whose names nothing else on the page sees, and which may wait for something."""
    return f"(async () => {{\n{''.join(part + chr(10) for part in parts)}}})();\n"


@cache
def asset(package: str, name: str) -> str:
    """A text file from a package's folder ``assets``."""
    return (files(package) / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
