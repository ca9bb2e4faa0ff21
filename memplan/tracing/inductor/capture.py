"""One call of a region handed to Inductor: a graph of one opaque node, which AOTAutograd traces through."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.fx
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from memplan.errors import EstimateError
from memplan.seam.compiler import LocalSource
from memplan.seam.fake import detect_fake_mode
from memplan.seam.modes import disable_current_modes
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.inductor.checkpoint import tagged_checkpoints
from memplan.tracing.inductor.lowering import Compiler, lowering
from memplan.tracing.nested import tensors_in
from memplan.tracing.records import DeviceTraits

Flat = Callable[..., tuple[torch.Tensor, ...]]
"""Tensors to tensors."""


class _Seen(TorchFunctionMode):
    """Notes tensors as they are first used."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._index = {id(part): index for index, tensor in enumerate(tensors) for part in (tensor, _local(tensor))}
        self.order: dict[int, None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look at the arguments and go on."""
        given = tensors_in([*args, *(kwargs or {}).values()])
        found = [self._index.get(id(part)) for tensor in given for part in (tensor, _local(tensor))]
        self.order.update((index, None) for index in found if index is not None)
        return func(*args, **(kwargs or {}))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor this rank's part, which methods of it hand out that are no functions of torch's (``to_local``)."""
    if not isinstance(tensor, DTensor):
        return tensor
    return next(part for part in _parts(tensor).values() if isinstance(part, torch.Tensor))


def _parts(tensor: Any) -> dict[str, Any]:
    """What a DTensor is made of, by the protocol of wrapper subclasses: its part, in later releases its mesh, too."""
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


def stand_ins(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors alike, unrecorded: compiled code keeps those that it was made with, and so must not keep a batch."""
    with disable_current_modes(), detect_fake_mode(tensors) or nullcontext():
        return [_like(each) for each in tensors]


def _like(tensor: torch.Tensor) -> torch.Tensor:
    made = _like_shared(tensor) if isinstance(tensor, DTensor) else _like_plain(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made.detach(), requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def _like_plain(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _like_shared(tensor: Any) -> torch.Tensor:
    """A DTensor with a part of its own, on the same mesh: AOTAutograd takes it apart where it is given one."""
    parts = _parts(tensor)
    new = {name: _like_plain(part) if isinstance(part, torch.Tensor) else part for name, part in parts.items()}
    rest = tensor.__tensor_flatten__()[1]
    made: torch.Tensor = tensor.__tensor_unflatten__(new, rest, tensor.shape, tensor.stride())
    return made.detach()


def rehearsed(function: Flat, tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Run a function unrecorded: positions of the tensors that it uses, in order, and how many it returns."""
    seen, mode = _Seen(tensors), detect_fake_mode(tensors)
    with disable_current_modes(), mode or nullcontext(), torch.no_grad(), seen:
        results = len(function(*tensors))
    return list(seen.order), results


@contextmanager
def inside_capture() -> Iterator[None]:
    """What user code sees while it is compiled."""
    cached = torch.is_autocast_cache_enabled()
    # A cast made here is no cast that a step has made.
    torch.set_autocast_cache_enabled(False)
    try:
        with replaced((Replacement("torch.compiler.is_compiling", lambda: True),)), tagged_checkpoints():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def captured(
    function: Flat, tensors: Sequence[torch.Tensor], results: int, device: DeviceTraits, compiler: Compiler
) -> Flat:
    """Compile a function for the tensors that it is called with.

    The tensors are fake, and nothing of what runs on them here is recorded; the function returns so many. What is
    returned is AOTAutograd's runtime around the compiler's code, to be called as often as wished.
    """
    with disable_current_modes(), lowering(device):
        run: Flat = compiler(_graph(function, tensors, results), tensors)
    return _explaining(run)


def _explaining(run: Flat) -> Flat:
    """Say in plain words where torch compiles what it then cannot run."""

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            return run(*tensors)
        except AssertionError as error:
            if "DeviceMesh" not in str(error):
                raise
            raise EstimateError(
                f"torch {torch.__version__} compiles these checkpointed layers, but cannot run them under tensor"
                " parallelism: it saves their device mesh for backward as if it were a tensor",
                hint="a real run of torch 2.13 fails too; torch 2.14 runs it, and --compile eager traces it",
            ) from error

    return call


def _graph(function: Flat, tensors: Sequence[torch.Tensor], results: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"input_{index}") for index in range(len(tensors))]
    for node, tensor in zip(inputs, tensors, strict=True):
        node.meta["val"] = node.meta["example_value"] = tensor
        _sign(node, is_weight=isinstance(tensor, torch.nn.Parameter))
    call = graph.call_function(function, tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (call, index)) for index in range(results)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    module.meta["dynamo_compile_id"] = None
    vars(module)["_param_name_to_source"] = {}
    return module


def _sign(node: torch.fx.Node, *, is_weight: bool) -> None:
    """Say of an input what Dynamo would: what stays where it is (a weight) costs nothing to save for backward.

    Read by torch/_functorch/_aot_autograd/frontend_utils.py ``_try_get_metadata_from_dynamo``.
    """
    node._dynamo_source = LocalSource(node.name)
    node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"} if is_weight else {}
