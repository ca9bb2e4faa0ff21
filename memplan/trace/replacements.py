"""The two ways in which CUDA's behaviour is put in: kernels in torch's dispatcher, attributes of torch's modules."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

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


@contextlib.contextmanager
def fake_kernels(table: Mapping[str, Kernel]) -> Iterator[None]:
    """Replace what fake tensors take for the shapes and dtypes of an op's results.

    Args:
        table: Op name without ``aten::`` to a function of fake tensors that returns fake tensors.

    Yields:
        Nothing. Fake results cached before are forgotten at both ends.
    """
    rules: dict[Any, Kernel] = fake_impls.op_implementations_dict
    # An entry here keeps fake tensors from preferring torch's decomposition to the rule.
    metas: dict[Any, Kernel] = torch._decomp.meta_table
    former = dict(rules), dict(metas)
    here = {overload(name): kernel for name, kernel in table.items() if exists(name)}
    rules.update({op: _fake_rule(kernel) for op, kernel in here.items()})
    metas.update(here)
    FakeTensorMode.cache_clear()
    try:
        yield
    finally:
        for now, before in zip((rules, metas), former, strict=True):
            now.clear()
            now.update(before)
        FakeTensorMode.cache_clear()


def _fake_rule(kernel: Kernel) -> Kernel:
    def rule(fake_mode: FakeTensorMode, op: object, *args: Any, **kwargs: Any) -> Any:
        del op
        with fake_mode:
            return kernel(*args, **kwargs)

    return rule


def overload(name: str) -> torch._ops.OpOverload:
    """The op of a name as in the tables: ``softmax.int``, ``dropout``."""
    operator, _, suffix = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, operator), suffix or "default")
    return found


def has_kernel(name: str, key: str) -> bool:
    """Does this torch know the op and have a kernel of its own for it at a dispatch key?"""
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))
    except RuntimeError:
        # The dispatcher knows no such op (TorchScript has schemas of its own).
        return False


def exists(name: str) -> bool:
    """Does this torch know the op ``aten::{name}``?"""
    operator, _, suffix = name.partition(".")
    packet = getattr(torch.ops.aten, operator, None)
    return packet is not None and hasattr(packet, suffix or "default")


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
        ``NotImplemented`` if the op is a leaf on CUDA.
    """
    name = op._name.removeprefix("aten::")
    if op.namespace != "aten" or not has_kernel(name, COMPOSITE) or has_kernel(name, "CPU"):
        return NotImplemented
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
