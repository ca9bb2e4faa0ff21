"""Call stacks of predicted allocations: what a trace knows, written as frames.

A recording has no Python stack, but it knows more than one: op, source line, module path, phase and category. Each is
a frame whose ``file`` says what kind of thing it is, so that reports of real and of predicted histories are the same
code, and PyTorch's viewer shows ``module:0:layers.3.mlp`` where it would show ``model.py:41:forward``.

    innermost   op:0:aten.mm.default         (a parameter has  tensor:0:layers.3.mlp.weight  here)
                model.py:41:layers.3.mlp     where the user's code says it, if known
                module:0:layers.3.mlp
                module:0:layers.3
                module:0:layers
                phase:0:forward
    outermost   category:0:activation
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from memplan.lifetime.records import Lifetimes
from memplan.snapshot.records import Frame
from memplan.tracing.records import Event, Op

OP: Final = "op"
"""``file`` of a frame that names an aten op."""
TENSOR: Final = "tensor"
"""… a parameter, buffer or input."""
MODULE: Final = "module"
"""… a module by its path."""
PHASE: Final = "phase"
"""… a phase of the step."""
REGION: Final = "region"
"""… a region of a measured run (``memplan.snapshot.measured``)."""
CATEGORY: Final = "category"
"""… a category of memory; never in the stack of a free."""

Stack = tuple[Frame, ...]


def category_of(frames: Stack) -> str:
    """The category that a recorded allocation belongs to; empty for stacks that a GPU recorded."""
    return frames[-1].function if frames and frames[-1].file == CATEGORY else ""


class _Asked(NamedTuple):
    """All that a stack is made of; what is not known is empty."""

    kind: str
    name: str
    source: str
    module: str
    phase: str
    category: str


class TraceStacks:
    """Makes the stacks of a trace's events; equal ones are one object."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._ops = lifetimes.trace.ops
        self._storages = lifetimes.trace.storages
        self._buffers = lifetimes.buffers
        self._stacks: dict[_Asked, Stack] = {}
        self._frames: dict[Frame, Frame] = {}

    def of_alloc(self, event: Event) -> Stack:
        """Who asked for a storage, and what for."""
        buffer, name = self._buffers[event.storage], self._storages[event.storage].name
        op = self._op(event)
        phase = op.phase if op else "setup"
        if name:
            return self._stack(_Asked(TENSOR, name, buffer.source, buffer.module, phase, str(buffer.category)))
        return self._stack(_Asked(OP, op.name if op else "", buffer.source, buffer.module, phase, str(buffer.category)))

    def of_free(self, event: Event) -> Stack:
        """During or after which op a storage goes."""
        op = self._op(event)
        return self._stack(_Asked(OP, op.name, op.source, op.module, op.phase, "")) if op else ()

    def _op(self, event: Event) -> Op | None:
        return self._ops[event.op] if 0 <= event.op < len(self._ops) else None

    def _stack(self, asked: _Asked) -> Stack:
        stack = self._stacks.get(asked)
        if stack is None:
            stack = self._stacks[asked] = tuple(self._frames.setdefault(frame, frame) for frame in _frames(asked))
        return stack


def _frames(asked: _Asked) -> Iterator[Frame]:
    """The levels of one stack, innermost first; what is not known has none."""
    if asked.name:
        yield Frame(asked.kind, 0, asked.name)
    if asked.source:
        file, _, line = asked.source.rpartition(":")
        yield Frame(file, int(line) if line.isdigit() else 0, asked.module or "<main>")
    yield from (Frame(MODULE, 0, path) for path in _nested(asked.module))
    yield Frame(PHASE, 0, asked.phase)
    if asked.category:
        yield Frame(CATEGORY, 0, asked.category)


def _nested(module: str) -> Sequence[str]:
    """``a.b.c`` → ``a.b.c``, ``a.b``, ``a``."""
    parts = module.split(".") if module else []
    return [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
