"""DDP's reducer, written in C++, on fake gradients: its buckets, their rebuild and the copies are its own doing.

What it cannot have is answered here: the result of an all-reduce, also of one that a program's own communication hook
asks for, and the numbers of the parameters that it sends around.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from memplan.seam.distributed import GradBucket, Reducer
from memplan.seam.modes import DisableTorchFunction, TorchDispatchMode, disable_current_modes
from memplan.seam.patches.sharding import ALL_REDUCE, COMPARE_SHAPES, REBUILD_BUCKETS, REGISTER_HOOK
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.nested import tensors_in
from memplan.tracing.recorder import Recorder


@contextmanager
def working_reducers(recorder: Recorder) -> Iterator[None]:
    """Let DDP's reducer run on fake tensors, whoever makes it.

    The recorder learns which storages are buckets of gradients.
    """
    start: Callable[..., None] = attribute("torch.nn.parallel.DistributedDataParallel.__init__")
    rebuild: Callable[..., bool] = attribute(REBUILD_BUCKETS.path)

    register: Callable[..., None] = attribute(REGISTER_HOOK.path)
    hooks: WeakKeyDictionary[DistributedDataParallel, list[Any]] = WeakKeyDictionary()

    def reduced(own: list[Any], bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        recorder.references.claim(bucket.buffer(), role="gradient", of=bucket.buffer())
        if not own:
            # An all-reduce leaves its result in the bucket; the fake group's own future has none.
            return _done(bucket.buffer())
        state, hook = own
        with replaced((Replacement(ALL_REDUCE.path, _all_reduce),)):
            answer: torch.futures.Future[torch.Tensor] = hook(state, bucket)
            return answer

    def start_with_hook(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        start(ddp, *args, **kwargs)
        hooks[ddp] = []
        register(ddp, hooks[ddp], reduced)

    def register_own(ddp: DistributedDataParallel, state: object, hook: Callable[..., Any]) -> None:
        if hasattr(state, "start_powerSGD_iter"):
            # By default it begins after a thousand steps, and a trace ends after a few.
            state.start_powerSGD_iter = 1
        hooks[ddp][:] = state, hook

    def rebuild_with_numbers(reducer: Reducer) -> bool:
        with _RealNumbers():  # type: ignore[no-untyped-call]
            return rebuild(reducer)

    table = (
        # Every rank has the same parameters here; the check reads values.
        Replacement(COMPARE_SHAPES.path, lambda *_, **__: None),
        Replacement("torch.nn.parallel.DistributedDataParallel.__init__", start_with_hook),
        Replacement(REBUILD_BUCKETS.path, rebuild_with_numbers),
        Replacement(REGISTER_HOOK.path, register_own),
    )
    with replaced(table):
        yield


def _done(value: Any) -> torch.futures.Future[Any]:
    done: torch.futures.Future[Any] = torch.futures.Future()
    done.set_result(value)
    return done


def _all_reduce(tensor: torch.Tensor, *_: object, async_op: bool = False, **__: object) -> Any:
    """What a hook starts: its result lies where its input did."""
    return SimpleNamespace(wait=lambda: True, get_future=lambda: _done([tensor])) if async_op else None


class _RealNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes the reducer's lists of parameter numbers real tensors, which it writes and reads in place.

    torch/csrc/distributed/c10d/reducer.cpp ``sync_bucket_indices``: all of them, and nothing else, are int32.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run what concerns such lists without any mode."""
        del types
        kwargs = kwargs or {}
        tensors = tensors_in([*args, *kwargs.values()])
        of_numbers = all(type(tensor) is torch.Tensor for tensor in tensors) if tensors else _is_int(kwargs)
        # Function modes have no part in what C++ calls, but would see the call from here.
        with DisableTorchFunction(), disable_current_modes() if of_numbers else nullcontext():
            return func(*args, **kwargs)


def _is_int(kwargs: dict[str, Any]) -> bool:
    return kwargs.get("dtype") is torch.int32
