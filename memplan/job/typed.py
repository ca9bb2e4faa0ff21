"""Options that are written in a form of their own, on the command line and in project files alike."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from memplan.job.adapters import Lora, parse_lora
from memplan.job.inputs import parse_input
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import InputSpec


def parser_of(kind: Any, folder: Path = Path()) -> Callable[[str], Any] | None:
    """What reads the text of an option, or raises a ``UsageError``; None where the text is the value.

    Args:
        kind: Type of the value.
        folder: Where relative paths begin.
    """
    parsers: dict[Any, Callable[[str], Any]] = {
        Parallel: parse_parallel,
        Lora: partial(parse_lora, folder=folder),
        InputSpec: parse_input,
    }
    return parsers.get(kind)
