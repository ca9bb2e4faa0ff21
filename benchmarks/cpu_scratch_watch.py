"""Find what CPU kernels allocate that memplan does not know of, op by op, in a real run of a target file.

Runs two real steps under torch.profiler with a dispatch mode on top, and holds the allocator events of every op against
what memplan predicts for the same call on fake tensors: results, and scratch by the table. Prints the ops that differ.
Usage::

    python benchmarks/cpu_scratch_watch.py benchmarks/zoo/resnet.py --batch-size 4
"""

import argparse
import logging
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).parents[1]))

from cpu_measure import Event, load, run, train

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cpu_table import CPU_RULES
from memplan.tracing.scratch.rules import Call, Script

MARK = "watch."
"""Prefix of the profiler range around one op."""


@dataclass(slots=True)
class Watched:
    """One dispatched op."""

    name: str
    arguments: str
    predicted: int | None
    """Peak bytes inside the op by memplan, None where it cannot run on fakes."""
    events: list[tuple[int, int]] = field(default_factory=list)
    """Address and bytes (negative for a free), in order."""
    results: set[int] = field(default_factory=set)
    """Addresses of its new results."""
    made: int = 0
    """Bytes of their storages."""
    ended: bool = False
    """Did it return?"""

    @property
    def real(self) -> int:
        """Peak bytes inside the op."""
        live = peak = 0
        for _, nbytes in self.events:
            live += nbytes
            peak = max(peak, live)
        return peak

    @property
    def story(self) -> str:
        """Events in order: ``R`` is a result, ``+n`` and ``-n`` are scratch."""
        # An address may be reused inside the op: only its last allocation is the result.
        last = {ptr: place for place, (ptr, nbytes) in enumerate(self.events) if nbytes > 0 and ptr in self.results}
        return " ".join(
            "R" if last.get(ptr) == place else f"{size:+d}" for place, (ptr, size) in enumerate(self.events)
        )


class Watch(TorchDispatchMode):
    """Runs every op inside a numbered profiler range and predicts it on fakes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Watched] = []
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One op."""
        kwargs = kwargs or {}
        known = _addresses((args, kwargs))
        call = Watched(str(func), describe((args, kwargs)), self._predict(func, args, kwargs))
        self.calls.append(call)
        with record_function(f"{MARK}{len(self.calls) - 1}"):
            out = func(*args, **kwargs)
        call.ended = True
        call.results = _addresses(out) - known
        made = {storage.data_ptr(): storage.nbytes() for storage in map(torch.Tensor.untyped_storage, _tensors(out))}
        call.made = sum(made[address] for address in call.results)
        return out

    def _predict(self, func: Any, args: Any, kwargs: Any) -> int | None:
        try:
            with self.fake:
                args, kwargs = tree_map_only(torch.Tensor, _fake_like, (args, kwargs))
                # The call is predicted before it runs, since in-place ops change what it sees.
                return predicted_peak(func, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever cannot run on fakes has no prediction
            return None


def _fake_like(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.conj() if tensor.is_conj() else made


def predicted_peak(func: Any, args: Any, kwargs: Any) -> int:
    """Peak bytes of an op on fake tensors: new results, and scratch by memplan's table."""
    given = _storages((args, kwargs))
    out = func(*args, **kwargs)
    rule = CPU_RULES.get(str(func))
    call = Call(
        name=str(func),
        args=args,
        kwargs=kwargs,
        out=out,
        device=DeviceTraits(kind="cpu"),
        in_backward=False,
        is_host=lambda _: False,
    )
    script = (rule(call) if rule else None) or Script()
    results = sum(nbytes for key, nbytes in _storages(out).items() if key not in given)
    held: dict[str, int] = {}
    live = peak = 0
    for step in (*script.before, None, *script.after):
        if step is None:
            live += results
        elif step.action == "free":
            live -= held.pop(step.key)
        else:
            held[step.key] = step.nbytes
            live += step.nbytes
        peak = max(peak, live)
    return peak


def _tensors(value: Any) -> list[torch.Tensor]:
    """All that is dense, parts of sparse tensors among it."""
    found: list[torch.Tensor] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.sparse_coo:
            found += [leaf._indices(), leaf._values()]  # noqa: SLF001 - as they are, coalesced or not
        elif isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            found.append(leaf)
    return found


def _storages(value: Any) -> dict[int, int]:
    """C++ address → bytes of each storage."""
    storages = [tensor.untyped_storage() for tensor in _tensors(value)]
    return {storage._cdata: storage.nbytes() for storage in storages}  # noqa: SLF001 - the identity that torch offers


def _addresses(value: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in _tensors(value)}


def describe(value: Any) -> str:
    """Arguments as text: dtype, shape and strides of tensors."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}" + ("" if value.is_contiguous() else f"/{tuple(value.stride())}")
    if isinstance(value, tuple | list):
        return "(" + ", ".join(describe(item) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={describe(item)}" for key, item in value.items()) + "}"
    return type(value).__name__ if isinstance(value, torch.UntypedStorage) else repr(value)


def attribute(events: list[Event], calls: list[Watched]) -> None:
    """Give every allocator event to the innermost watched op around it."""
    for _, ptr, nbytes, around in events:
        marks = [name for name in around if name.startswith(MARK)]
        if marks:
            calls[int(marks[-1].removeprefix(MARK))].events.append((ptr, nbytes))


def report(calls: list[Watched], floor: int) -> None:
    """Print the ops whose real peak differs from the prediction by more than ``floor`` bytes, a few examples each."""
    differing: dict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        if call.predicted is not None and abs(call.real - call.predicted) > floor:
            text = f"real {call.real} predicted {call.predicted} {call.arguments} -> {call.story}"
            differing[call.name][text] += 1
    for name, texts in sorted(differing.items()):
        print(name)
        for text, count in texts.most_common(4):
            print(f"    {count} x {text[:600]}")
    unknown = Counter(call.name for call in calls if call.predicted is None)
    print(f"{len(calls)} ops, {sum(map(len, differing.values()))} kinds of calls differ; not on fakes: {dict(unknown)}")


def main() -> None:
    """Watch one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--floor", type=int, default=512)
    options = parser.parse_args()
    options.steps, options.grad_accum, options.clip_grad_norm, options.autocast = 2, 1, None, False
    logging.disable(logging.ERROR)  # fake tensors log what they cannot run
    torch.set_num_threads(1)
    torch.manual_seed(0)
    target, watch = load(options.target), Watch()

    def body() -> None:
        with watch:
            train(target, options)

    events, _ = run(body)
    attribute(events, watch.calls)
    report(watch.calls, options.floor)


if __name__ == "__main__":
    main()
