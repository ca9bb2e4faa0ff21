"""A DeepSpeed configuration inside another file: in a file of its own that is named there, or written out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memplan.errors import MemplanError
from memplan.job.config_files import deepspeed
from memplan.job.config_files.content import load
from memplan.job.config_files.source import FileSource


def include_deepspeed(source: FileSource, place: str, ranks: int | None = None) -> None:
    """Take over DeepSpeed's settings; what they say counts, as DeepSpeed is what runs.

    The place holds a path, relative to the file, or the settings themselves. Some files say how many ranks there are.
    """
    found = source.get(place)
    if isinstance(found, Mapping):
        inner = FileSource(path=source.path, content=found)
    else:
        path = source.path.parent / str(found)
        try:
            inner = FileSource(path=path, content=load(path))
        except MemplanError as error:
            source.problems.append(f"{source.path.name}: {place}: {error.what}")
            return
    deepspeed.read(inner)
    source.include(inner)
    set_ranks(source, ranks)


def set_ranks(source: FileSource, ranks: int | None) -> None:
    """Let a file that knows the number of ranks say it where DeepSpeed's does not."""
    parallel: Any = source.values.get("parallel")
    if ranks is not None and parallel is not None and "parallel" in source.lacks:
        source.values["parallel"] = replace(parallel, shards=ranks)
        del source.lacks["parallel"]
