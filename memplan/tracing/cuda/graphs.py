"""CUDA graphs are not followed: what a program captures runs as it stands, and the report says so."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from memplan.files.read import UnreadableError, read_text
from memplan.tracing.cuda.streams import Streams

NOT_CAPTURED = (
    "CUDA graphs: what is captured runs as ordinary steps; a graph keeps its own pool of memory beside what the steps "
    "before its capture took"
)
"""Not modelled."""
_WORDS = ("CUDAGraph", "make_graphed_callables", "cuda.graph(")


def names_graphs(program: Path) -> bool:
    """Does a program's own code name CUDA graphs? Its trace may end before anything is captured.

    Args:
        program: Its file, or the folder of a module that is run, as an absolute path; modules that it has loaded from
            there are its own, too.
    """
    folder = program.parent if program.is_file() else program
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    files = {program, *(Path(file) for file in loaded if file)}
    return any(_names_graphs(file) for file in files if file.is_relative_to(folder) and file.suffix == ".py")


def _names_graphs(file: Path) -> bool:
    if "site-packages" in file.parts:
        return False
    with contextlib.suppress(UnreadableError):
        return any(word in read_text(file) for word in _WORDS)
    return False


class CudaGraph:
    """A stand-in for ``torch.cuda.CUDAGraph``: nothing is captured, so that a replay does nothing."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """With any arguments."""
        return super().__new__(cls)

    def replay(self, *_: object) -> None:
        """Nothing runs, and nothing is allocated."""

    reset = enable_debug_mode = debug_dump = capture_begin = capture_end = instantiate = replay

    def pool(self) -> tuple[int, int]:
        """A handle."""
        return (0, 1)


def answers(streams: Streams) -> dict[str, Any]:
    """What ``torch.cuda`` does about graphs, by name."""

    @contextlib.contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        """What is captured is allocated apart from all else, as on another stream."""
        with streams.on(streams.kind()):
            yield

    return {
        "CUDAGraph": CudaGraph,
        "graph": graph,
        "graph_pool_handle": lambda: (0, 1),
        "make_graphed_callables": lambda callables, *_, **__: callables,
    }
