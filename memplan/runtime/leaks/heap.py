"""Tensors of the process, and what holds those that no Python tensor shows: gradients, graphs, running code."""

import gc
import inspect
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import torch

from memplan.seam.autograd import SavedTensor

NODES = 200_000
"""Nodes of graphs to visit at most: a second or two."""
_OWN = str(Path(__file__).parent)
"""Variables of this room say nothing about the user's program."""


def live_tensors(device: str) -> Iterator[torch.Tensor]:
    """Every tensor that the garbage collector knows, on devices of one type."""
    for each in gc.get_objects():
        # The type alone: ``isinstance`` asks ``__class__``, which proxies answer with code of their own.
        if issubclass(type(each), torch.Tensor) and storage_id(each) and each.device.type == device:
            yield each


def storage_id(tensor: torch.Tensor) -> int:
    """Address of a tensor's storage in C++; 0 where it has none (sparse, wrapped or functional tensors)."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - what StorageWeakRef compares, too.
    except (NotImplementedError, RuntimeError):
        return 0


class TensorHolder(NamedTuple):
    """A Python tensor that keeps a storage, and how."""

    tensor: torch.Tensor
    """Itself."""
    suffix: str
    """From it to the storage: empty, ``.grad``, or ``.grad_fn`` with the node that saves it."""
    nodes: int
    """Nodes of autograd's graph in between."""
    held: bool
    """Does Python code hold it? C++ keeps Python's side of a tensor too, and then nothing refers to that."""


def holders(storages: set[int], device: str, seconds: float) -> dict[int, list[TensorHolder]]:
    """Who holds these storages.

    Storages are addresses, as of ``storage_id``. After so many seconds graphs are not followed further.

    Returns:
        By address, those that Python code holds first; of these, tensors on the storage before parameters whose
        gradient it is, and these before those whose graph saves it. None where it is nowhere to be found.
    """
    tensors = list(live_tensors(device))
    held = _held(tensors)
    tensors.sort(key=lambda each: id(each) not in held)
    found: dict[int, list[TensorHolder]] = {each: [] for each in storages}
    for tensor in tensors:
        _add(found, storage_id(tensor), TensorHolder(tensor, "", 0, id(tensor) in held))
    for tensor in tensors:
        if (grad := _gradient(tensor)) is not None:
            _add(found, storage_id(grad), TensorHolder(tensor, ".grad", 0, id(tensor) in held))
    for address, holder in _saved(_graphs(tensors, held), storages, time.monotonic() + seconds):
        _add(found, address, holder)
    return {address: sorted(each, key=lambda holder: not holder.held) for address, each in found.items()}


def _add(found: dict[int, list[TensorHolder]], address: int, holder: TensorHolder) -> None:
    if address in found:
        found[address].append(holder)


def _held(tensors: list[torch.Tensor]) -> set[int]:
    """Addresses of those that some Python object or variable holds."""
    wanted = {id(each) for each in tensors}
    variables = {id(value) for _, value in local_variables()}
    holding = (each for each in gc.get_referrers(*tensors) if each is not tensors) if tensors else ()
    return wanted & (variables | {id(child) for each in holding for child in gc.get_referents(each)})


def _graphs(tensors: list[torch.Tensor], held: set[int]) -> Iterator[tuple[TensorHolder, Any]]:
    """Tensors whose graph is to be followed, and where it begins."""
    for each in tensors:
        if (node := _node(each)) is not None:
            yield TensorHolder(each, ".grad_fn", 1, id(each) in held), node
        elif (grad := _gradient(each)) is not None and grad.grad_fn is not None:
            yield TensorHolder(each, ".grad.grad_fn", 1, id(each) in held), grad.grad_fn


def _node(tensor: torch.Tensor) -> Any:
    """Where its graph begins. A view that was changed in a way that autograd forbids raises when it is asked."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a leaf keeps; others are not asked, for they warn."""
    try:
        return tensor.grad if tensor.is_leaf else None
    except RuntimeError:
        return None


def _saved(
    graphs: Iterable[tuple[TensorHolder, Any]], storages: set[int], until: float
) -> Iterator[tuple[int, TensorHolder]]:
    seen: set[Any] = set()
    for holder, root in graphs:
        stack = [(root, 1)]
        while stack:
            node, depth = stack.pop()
            if node is None or node in seen:
                continue
            if len(seen) > NODES or time.monotonic() > until:
                return
            seen.add(node)
            for name, address in _saved_by(node):
                if address in storages:
                    far = "" if depth == 1 else f" → … {depth - 2} more → {node.name()}"
                    yield address, holder._replace(suffix=f"{holder.suffix}{far}.{name}", nodes=depth)
            stack += [(child, depth + 1) for child, _ in node.next_functions]


def _saved_by(node: Any) -> Iterator[tuple[str, int]]:
    """Names and storages of what a node saves. The raw form: unpacking runs hooks, which compute or load."""
    raw = hasattr(SavedTensor, "data")  # torch 2.6 unpacks, or says nothing.
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            try:
                saved = getattr(node, name if raw else name.removeprefix("_raw"))
                several = saved if isinstance(saved, tuple | list) else (saved,)
                data = [each.data if raw else each for each in several]
            except (RuntimeError, AttributeError):  # Freed by backward.
                continue
            yield from (
                (name.removeprefix("_raw"), storage_id(each)) for each in data if isinstance(each, torch.Tensor)
            )  # fmt: skip


def running_frames() -> Iterator[FrameType]:
    """Of every thread, innermost first; this room's left out."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 - the documented way to other threads' frames.
        frame: FrameType | None = innermost
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OWN):
                yield frame
            frame = frame.f_back


def local_variables() -> list[tuple[str, Any]]:
    """``function.variable`` and value, of every function that runs in any thread."""
    found = []
    for frame in running_frames():
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # A function's; a module's are its globals.
            found += [(f"{frame.f_code.co_name}.{name}", value) for name, value in frame.f_locals.items()]
            _forget(frame)
    return found


def _forget(frame: FrameType) -> None:
    """Before Python 3.13 ``f_locals`` leaves a copy in the frame, which would keep every value until the frame ends."""
    if sys.version_info < (3, 13):
        frame.f_locals.clear()


def module_variables() -> dict[int, str]:
    """Modules by the address of their dict of globals."""
    modules: list[tuple[str, object]] = list(sys.modules.items())  # None, and lazy stand-ins, are among them.
    found: dict[int, str] = {}
    for name, each in modules:
        if isinstance(each, ModuleType):
            found.setdefault(id(vars(each)), name)  # ``__mp_main__`` is another name of ``__main__``.
    return found
