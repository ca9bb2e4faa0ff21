"""The cause of a leak, from the chain that keeps it: a table of tests, the most telling first."""

import functools
import logging
import queue
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from memplan.runtime.leaks.records import Chain

_HOOKS = re.compile(r"\._\w*hooks(_|\b)")


class Evidence(NamedTuple):
    """What a cause is read from."""

    chain: Chain
    """The path."""
    objects: list[Any]
    """On it, the tensor last."""
    tensor: torch.Tensor | None
    """The Python tensor at its end; None where nothing was found."""
    shared: bool
    """Does the same tensor keep what was born in several steps?"""


def cause(evidence: Evidence) -> str:
    """Code of the first cause that fits."""
    return next((code for code, fits in _CAUSES.items() if fits(evidence)), "ML019")


def _has(*kinds: type | tuple[type, ...]) -> Callable[[Evidence], bool]:
    return lambda evidence: any(issubclass(type(each), kinds) for each in evidence.objects[:-1])


def _named(*names: str) -> Callable[[Evidence], bool]:
    return lambda evidence: any(name in str(evidence.chain) for name in names)


def _contained(evidence: Evidence) -> bool:
    return any(each.kind in {"item", "key"} for each in evidence.chain.links)


def _graph_in_gradient(evidence: Evidence) -> bool:
    tensors = [each for each in (evidence.tensor, *evidence.objects) if issubclass(type(each), torch.Tensor)]
    return any(each.is_leaf and each.grad is not None and each.grad.grad_fn is not None for each in tensors)


def _has_graph(evidence: Evidence) -> bool:
    return evidence.tensor is not None and evidence.tensor.grad_fn is not None


def _metric(evidence: Evidence) -> bool:
    return any(
        callable(getattr(type(each), "update", None)) and callable(getattr(type(each), "compute", None))
        for each in evidence.objects
    )


def _writer(evidence: Evidence) -> bool:
    return any(type(each).__name__.endswith("Writer") for each in evidence.objects)


def _registry(evidence: Evidence) -> bool:
    return _contained(evidence) and _has(type, threading.local)(evidence)


_CAUSES: Mapping[str, Callable[[Evidence], bool]] = {
    "ML010": _graph_in_gradient,
    "ML005": lambda evidence: bool(evidence.chain.cycle),
    "ML003": lambda evidence: bool(_HOOKS.search(str(evidence.chain))),
    "ML006": _named(".__traceback__", ".__context__", ".__cause__"),
    "ML009": lambda evidence: _has(logging.LogRecord, logging.Handler)(evidence) or _writer(evidence),
    "ML007": _has(torch.optim.Optimizer),
    "ML008": _metric,
    "ML013": _named("._modules", "._parameters", "._buffers"),
    "ML012": _has(FunctionCtx),
    "ML018": _has(functools._lru_cache_wrapper),  # noqa: SLF001 - the type has no other name.
    "ML015": _has(queue.Queue),
    "ML002": lambda evidence: evidence.shared and evidence.chain.graph_nodes > 0,
    "ML001": lambda evidence: _contained(evidence) and _has_graph(evidence),
    "ML011": _registry,
    "ML014": _named(".__closure__", ".__defaults__", ".__kwdefaults__"),
    "ML004": _contained,
}
"""In order: what says more about the cause comes before what would fit it, too."""
