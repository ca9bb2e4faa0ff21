"""The two ways in which CUDA's behaviour is put in: kernels in torch's dispatcher, attributes of torch's modules."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

Kernel = Callable[..., Any]

COMPOSITE = "CompositeImplicitAutograd"
"""Replacing this kernel serves grad mode, no_grad and ``decompose`` (which recorders call in inference mode)."""


class Attribute(NamedTuple):
    """One attribute of a torch module or class and what stands there during a trace."""

    owner: object
    name: str
    value: object


@contextlib.contextmanager
def kernels(table: Mapping[str, Kernel], key: str = COMPOSITE) -> Iterator[None]:
    """Replace aten kernels.

    Args:
        table: Op name without ``aten::`` (``dropout``, ``lstm.input``) to kernel. Ops that this torch does not have are
            left out.
        key: Dispatch key to register at.

    Yields:
        Nothing; torch's own kernels are back when the context ends.
    """
    # A library restores what it replaced when it is destroyed, and this context manager is the way to destroy it.
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            # Replacing is the purpose; torch says so once per process.
            warnings.simplefilter("ignore")
            for name, kernel in table.items():
                if exists(name):
                    library.impl(name, kernel, key)
        yield


def exists(name: str) -> bool:
    """Does this torch know the op ``aten::{name}``?"""
    operator, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, operator, None)
    return packet is not None and hasattr(packet, overload or "default")


@contextlib.contextmanager
def attributes(table: tuple[Attribute, ...]) -> Iterator[None]:
    """Set attributes and put the former values back at the end, in reverse order; absent attributes are left out.

    Args:
        table: What to set where.
    """
    present = [entry for entry in table if hasattr(entry.owner, entry.name)]
    # Through __dict__, so that staticmethods and inherited attributes come back as they were.
    former = [vars(entry.owner).get(entry.name, _INHERITED) for entry in present]
    try:
        for entry in present:
            setattr(entry.owner, entry.name, entry.value)
        yield
    finally:
        for entry, value in reversed(list(zip(present, former, strict=True))):
            if value is _INHERITED:
                delattr(entry.owner, entry.name)
            else:
                setattr(entry.owner, entry.name, value)


_INHERITED = object()


def decompose(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a composite op's own C++ (or replaced) kernel, as eager PyTorch does.

    Args:
        op: The op as it reached a dispatch mode.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Returns:
        ``NotImplemented`` if the op is a leaf.
    """
    if op.namespace != "aten" or not torch._C._dispatch_has_kernel_for_dispatch_key(op._name, COMPOSITE):
        return NotImplemented
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
