"""``torch.compile`` during a trace: what it would compile runs as it is written, and the report says so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memplan.trace.replacements import Attribute, attributes

NOTE = "torch.compile: compiled code is traced as eager code"


@contextmanager
def eager_compile() -> Iterator[dict[str, None]]:
    """Let ``torch.compile`` and ``Module.compile`` hand back what they were given.

    Dynamo cannot run under the modes of a trace, and a compiled model would name its parameters differently.

    Yields:
        What the figures leave out: empty until something asks to be compiled.
    """
    noted: dict[str, None] = {}

    def compile_(model: Callable[..., Any] | None = None, **options: Any) -> Any:
        noted[NOTE] = None
        # Without a function it is a decorator with options.
        return (lambda function: compile_(function, **options)) if model is None else model

    def compile_module(self: torch.nn.Module, *_: Any, **__: Any) -> None:
        del self
        noted[NOTE] = None

    with attributes(
        (Attribute(torch, "compile", compile_), Attribute(torch.nn.Module, "compile", compile_module)),
    ):
        yield noted
