"""Find what CPU kernels allocate beyond their results, op by op, in a real run of a target file.

Three questions are answered for every dispatched op: which allocations did the kernel make that are none of its results
(scratch, in order), do the fake results have the sizes of the real ones, and is a result really a new allocation.
"""

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from cpu_measure import load, run, train
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

MARK = "watch."
"""Prefix of the profiler range around one op."""


class Watch(TorchDispatchMode):
    """Runs every op inside a numbered profiler range and keeps the addresses of its results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One op."""
        kwargs = kwargs or {}
        number = len(self.calls)
        faked = self._sizes_on_fakes(func, args, kwargs)
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if _is_tensor(leaf)}
        call = {"name": str(func), "args": describe((args, kwargs))}
        self.calls.append(call)
        with record_function(f"{MARK}{number}"):
            out = func(*args, **kwargs)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tree_leaves(out) if _is_tensor(t)}
        call["results"] = {ptr: size for ptr, size in storages.items() if ptr not in known}
        call["real"] = [t.untyped_storage().nbytes() for t in tree_leaves(out) if _is_tensor(t)]
        call["fake"] = faked
        return out

    def _sizes_on_fakes(self, func: Any, args: Any, kwargs: Any) -> list[int] | str:
        state = torch.get_rng_state()
        try:
            with self.fake:
                args, kwargs = tree_map_only(torch.Tensor, self.fake.from_tensor, (args, kwargs))
                out = func(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - any failure is the finding
            return type(error).__name__
        finally:
            torch.set_rng_state(state)
        return [t.untyped_storage().nbytes() for t in tree_leaves(out) if _is_tensor(t)]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_mkldnn


def describe(value: Any) -> str:
    """Arguments as text: dtype, shape and strides of tensors."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        dense = "" if value.is_contiguous() else f"/{tuple(value.stride())}"
        return f"{kind}{list(value.shape)}{dense}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(describe(item) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={describe(item)}" for key, item in value.items()) + "}"
    return repr(value)


def scratch(events: list[Any], calls: list[dict[str, Any]]) -> None:
    """Attach to every call the allocator events inside it that are none of its results."""
    owner: dict[int, int] = {}
    for _, ptr, nbytes, around in events:
        marks = [int(name[len(MARK) :]) for name in around if name.startswith(MARK)]
        if not marks:
            continue
        number = marks[-1]
        call = calls[number]
        call.setdefault("stream", []).append((ptr, nbytes))
    del owner
    for call in calls:
        call["scratch"] = _without_results(call.get("stream", []), call.get("results", {}))


def _without_results(stream: list[tuple[int, int]], results: dict[int, int]) -> list[str]:
    """Events in order: ``R`` is a result, ``+n`` and ``-n`` are scratch."""
    # An address may be reused inside the op: only its last allocation is the result.
    last = {ptr: position for position, (ptr, nbytes) in enumerate(stream) if nbytes > 0 and ptr in results}
    return ["R" if last.get(ptr) == position else f"{nbytes:+d}" for position, (ptr, nbytes) in enumerate(stream)]


def main() -> None:
    """Print the ops of a target that take scratch or whose fakes differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--floor", type=int, default=64)
    options = parser.parse_args()
    options.steps, options.grad_accum, options.clip_grad_norm, options.autocast = 2, 1, None, False
    torch.set_num_threads(1)
    torch.manual_seed(0)
    target, watch = load(options.target), Watch()

    def body() -> None:
        with watch:
            train(target, options)

    events, _ = run(body)
    scratch(events, watch.calls)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for call in watch.calls:
        sizes = [item for item in call["scratch"] if item != "R"]
        if any(abs(int(item)) >= options.floor for item in sizes):
            seen["SCRATCH " + call["name"]][f"{call['args']} -> {' '.join(call['scratch'])}"] += 1
        if call.get("fake") != call.get("real") and not call["name"].endswith("_.default"):
            seen["FAKE " + call["name"]][f"{call['args']} real {call.get('real')} fake {call.get('fake')}"] += 1
    for name, texts in sorted(seen.items()):
        print(name)
        for text, count in texts.most_common(4):
            print("   ", count, text[:600])
    if options.out:
        options.out.write_text(json.dumps([{k: c.get(k) for k in ("name", "args", "scratch")} for c in watch.calls]))


if __name__ == "__main__":
    main()
