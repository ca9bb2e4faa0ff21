"""Kernels in torch's dispatcher, real ones and those of fake tensors, replaced for the length of a context."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

from memplan.seam.find import is_expected, missing
from memplan.seam.operators import PreserveDispatchKeyGuard, dispatch_tls_set_dispatch_key_excluded
from memplan.seam.patches.ops import OPS, of_every_release

Kernel = Callable[..., Any]

COMPOSITE = "CompositeImplicitAutograd"
"""Replacing this kernel serves grad mode, no_grad and ``decompose`` (which recorders call in inference mode)."""


@contextlib.contextmanager
def kernels(table: Mapping[str, Kernel], key: str = COMPOSITE) -> Iterator[None]:
    """Replace aten kernels.

    Args:
        table: Op name without ``aten::`` (``dropout``, ``lstm.input``) to kernel. Ops that this torch is not expected
            to have are left out.
        key: Dispatch key to register at.

    Yields:
        Nothing; torch's own kernels are back when the context ends.

    Raises:
        SeamError: Torch lacks an op that it is expected to have, or runs it another way than by that kernel.
    """
    # A library restores what it replaced when it is destroyed, and this context manager is the way to destroy it.
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            # Replacing is the purpose; torch says so once per process.
            warnings.simplefilter("ignore")
            for name in _present(table):
                if key == COMPOSITE and not has_kernel(name, COMPOSITE):
                    raise missing(of_every_release(f"{name} (as a composite)"))
                library.impl(name, table[name], key)
        yield


@contextlib.contextmanager
def fake_kernels(table: Mapping[str, Kernel]) -> Iterator[None]:
    """Replace what fake tensors take for the shapes and dtypes of an op's results.

    Args:
        table: Op name without ``aten::`` to a function of fake tensors that returns fake tensors.

    Yields:
        Nothing. Fake results cached before are forgotten at both ends.

    Raises:
        SeamError: Torch lacks an op that it is expected to have.
    """
    rules: dict[Any, Kernel] = fake_impls.op_implementations_dict
    # An entry here keeps fake tensors from preferring torch's decomposition to the rule.
    metas: dict[Any, Kernel] = torch._decomp.meta_table
    former = dict(rules), dict(metas)
    here = {overload(name): table[name] for name in _present(table)}
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


def _present(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if exists(name):
            yield name
        elif is_expected(op := OPS.get(name) or of_every_release(name)):
            raise missing(op)


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


_FOLDING = frozenset({"matmul", "linear"})
"""Composites that ask whether a view's base has a gradient (LinearAlgebra.cpp ``should_fold``); among others, such as
``narrow``, what a mode returns may be no differentiable view."""


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
    with PreserveDispatchKeyGuard():
        if name in _FOLDING and torch.is_inference_mode_enabled():
            # Views of weights know there too that their base has a gradient: products are folded by it.
            dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.ADInplaceOrView, False)
        return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
