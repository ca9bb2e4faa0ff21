"""Makes the calls of ``cudnn_cases.py``, and tells what the allocator did within each op.

Each op that is dispatched stands between two marks: allocations of sizes that nobody else asks for.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.cuda.memory import _record_memory_history as record_history
from torch.cuda.memory import _snapshot as snapshot
from torch.utils._python_dispatch import TorchDispatchMode

Case = dict[str, Any]

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
OP_BEGINS, OP_ENDS, CASE_BEGINS = 3331, 3333, 5_000_001
"""Sizes of marks; the number of the case is added to the last, twice so that it stays odd."""
PLAN = re.compile(r"(\w*eng\d+(?:_k\d+=-?\d+)*)[^\n]*?workSpaceSize:? *(\d+)")
"""One plan in the log of cuDNN's frontend: engine and knobs, work space."""


class Marks(TorchDispatchMode):
    """Puts marks around ops.

    Args:
        device: Where the calls are made.
        log: What cuDNN's frontend writes; None for none.
        profiled: Are kernels recorded? Then each op is a span of its own in the profile.
    """

    def __init__(self, device: torch.device, log: Path | None = None, *, profiled: bool = False) -> None:
        super().__init__()
        self.device, self.log, self.profiled = device, log, profiled
        self.ops: list[str] = []
        self.plans: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001 (the op's name without its overload)
        self.ops.append(name)
        self.plans.append("")
        at = len(self.ops) - 1
        before = self._written()
        self.mark(OP_BEGINS)
        try:
            if self.profiled and "conv" in name:
                torch.cuda.synchronize(self.device)
                with torch.profiler.record_function(f"memplan:{at}"):
                    out = func(*args, **(kwargs or {}))
                    torch.cuda.synchronize(self.device)
            else:
                out = func(*args, **(kwargs or {}))
        finally:
            self.mark(OP_ENDS)
        if self._written() > before:
            self.plans[at] = self._plan(before)
        return out

    def mark(self, size: int) -> None:
        """Leave a mark in the allocator's history."""
        torch.empty(size, dtype=torch.uint8, device=self.device)

    def _written(self) -> int:
        return self.log.stat().st_size if self.log is not None and self.log.exists() else 0

    def _plan(self, since: int) -> str:
        """The last plan that was made: the one that ran."""
        assert self.log is not None
        with self.log.open("rb") as file:
            file.seek(since)
            found = PLAN.findall(file.read().decode("utf-8", "replace"))
        return f"{found[-1][0]} {found[-1][1]} {len(found)}" if found else "?"


@contextmanager
def recorded(device: torch.device, found: dict[int, list[list[int]]]) -> Iterator[None]:
    """Keep the allocator's history meanwhile; case → sizes within each op, frees negative, is put into ``found``."""
    if device.type != "cuda":
        yield
        return
    record_history("all", context=None, max_entries=1_000_000)
    try:
        yield
    finally:
        torch.cuda.synchronize(device)
        trace = snapshot()["device_traces"][device.index or 0]
        record_history(None)
        found |= split(trace)


def split(trace: Iterable[dict[str, Any]]) -> dict[int, list[list[int]]]:
    """A history cut at its marks: case → for each op, in the order of their beginnings, its sizes."""
    cases: dict[int, list[list[int]]] = {}
    ops: list[list[int]] = []
    stack: list[list[int]] = []
    for event in trace:
        size, action = event["size"], event["action"]
        if action == "alloc" and size == OP_BEGINS:
            stack.append([])
            ops.append(stack[-1])
        elif action == "alloc" and size == OP_ENDS:
            if stack:
                stack.pop()
        elif action == "alloc" and size >= CASE_BEGINS and size % 2 and (size - CASE_BEGINS) // 2 <= 100_000:
            if not stack:
                ops = cases[(size - CASE_BEGINS) // 2] = []
        elif size in (OP_BEGINS, OP_ENDS):
            continue
        elif stack and action == "alloc":
            stack[-1].append(size)
        elif stack and action == "free_requested":
            stack[-1].append(-size)
    return cases


def make(case: Case, device: torch.device) -> None:
    """Make the calls of a case."""
    torch.backends.cudnn.allow_tf32 = bool(case.get("tf", 1))
    torch.backends.cudnn.deterministic = bool(case.get("det", 0))
    CALLS[case["kind"]](case, device)


def _convolution(case: Case, device: torch.device) -> None:
    source, weight, bias, options = _operands(case, device)
    result = torch.ops.aten.convolution(source, weight, bias, *options)
    gradient = torch.empty_like(result)
    del result
    for mask in ([True, False, False], [False, True, False], *([[True, True, True]] if case.get("b") else [])):
        sizes = [gradient.shape[1]] if mask[2] else None
        torch.ops.aten.convolution_backward(gradient, source, weight, sizes, *options, mask)


def _operands(case: Case, device: torch.device) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    dims = len(case["s"])
    dtype, layout = TYPES[case.get("dt", "f32")], _layout(case, dims)
    ends = [case["c"], case["k"]] if case.get("t") else [case["k"], case["c"]]
    groups = case.get("g", 1)
    source = torch.zeros([case["n"], case["c"], *case["s"]], dtype=dtype, device=device).to(memory_format=layout)
    weight = torch.zeros([ends[0], ends[1] // groups, *case["f"]], dtype=dtype, device=device).to(memory_format=layout)
    bias = torch.zeros([case["k"]], dtype=dtype, device=device) if case.get("b") else None
    nothing, ones = [0] * dims, [1] * dims
    steps, padding, dilation = case.get("st", ones), case.get("p", nothing), case.get("dl", ones)
    return source, weight, bias, (steps, padding, dilation, bool(case.get("t")), case.get("op", nothing), groups)


def _layout(case: Case, dims: int) -> torch.memory_format:
    if not case.get("cl"):
        return torch.contiguous_format
    return {2: torch.channels_last, 3: torch.channels_last_3d}[dims]


def _module(case: Case, device: torch.device) -> None:
    source, weight, bias, options = _operands(case, device)
    source.requires_grad_()
    weight.requires_grad_()
    low = TYPES[case["ac"] or "bf16"]
    with torch.autocast(device.type, dtype=low, enabled=bool(case["ac"])):
        result = torch.nn.functional.conv2d(source, weight, bias, *options[:3], options[5])
    result.backward(torch.empty_like(result))


def _recurrent(case: Case, device: torch.device) -> None:
    dtype = TYPES[case["dt"]] if not case["ac"] else torch.float32
    more = {"proj_size": case["pr"]} if case["pr"] else {}
    layer = getattr(torch.nn, case["m"])(
        case["i"],
        case["h"],
        case["l"],
        bias=bool(case["bias"]),
        batch_first=bool(case["bf"]),
        dropout=case["dr"] if case["l"] > 1 else 0.0,
        bidirectional=bool(case["bi"]),
        **more,
    )
    layer.to(device=device, dtype=dtype).train(bool(case["tr"]))
    shape = (case["n"], case["t"], case["i"]) if case["bf"] else (case["t"], case["n"], case["i"])
    source: Any = torch.zeros(shape, dtype=dtype, device=device, requires_grad=bool(case["xg"] and case["tr"]))
    if case["pk"]:
        lengths = torch.linspace(case["t"], max(1, case["t"] // 2), case["n"]).long()
        source = torch.nn.utils.rnn.pack_padded_sequence(source, lengths, batch_first=bool(case["bf"]))
    low = torch.bfloat16 if case["dt"] == "bf16" else torch.float16
    with torch.set_grad_enabled(bool(case["tr"])):
        # Inference keeps no reserve; the second call finds what the first has left.
        for _ in range(2 if case["dr"] else 1):
            with torch.autocast(device.type, dtype=low, enabled=bool(case["ac"])):
                result = layer(source)[0]
    if case["tr"]:
        result = result.data if case["pk"] else result
        result.backward(torch.empty_like(result))


def _batch_norm(case: Case, device: torch.device) -> None:
    dims, dtype = len(case["s"]), TYPES[case["dt"]]
    layer = getattr(torch.nn, f"BatchNorm{dims}d")(case["c"]).to(device).train(bool(case["tr"]))
    if case["wt"] == "same":
        layer.to(dtype)
    source = torch.zeros([case["n"], case["c"], *case["s"]], dtype=dtype, device=device)
    source = source.to(memory_format=_layout(case, dims)).requires_grad_()
    result = layer(source)
    result.backward(torch.empty_like(result))


def _attention(case: Case, device: torch.device) -> None:
    shape = (case["n"], case["q"], case["h"], case["d"])
    made = [torch.zeros(shape, dtype=TYPES[case["dt"]], device=device, requires_grad=True) for _ in range(3)]
    query, key, value = (each.transpose(1, 2) for each in made)
    backends = [torch.nn.attention.SDPBackend.CUDNN_ATTENTION]
    if device.type != "cuda":
        backends = [torch.nn.attention.SDPBackend.MATH]
    with torch.nn.attention.sdpa_kernel(backends):
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=bool(case["ca"]), dropout_p=case["dr"]
        )
    result.backward(torch.empty_like(result))


CALLS: dict[str, Callable[[Case, torch.device], None]] = {
    "conv": _convolution,
    "module": _module,
    "rnn": _recurrent,
    "bn": _batch_norm,
    "sdpa": _attention,
}


def run(case: Case, number: int, device: torch.device, log: Path | None, *, profiled: bool = False) -> dict[str, Any]:
    """One case: its ops, what each engine's plan is called, how long it took, and what failed."""
    began = time.monotonic()
    marks = Marks(device, log, profiled=profiled)
    marks.mark(CASE_BEGINS + 2 * number)
    row: dict[str, Any] = {"case": case}
    try:
        with marks:
            make(case, device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:  # noqa: BLE001 (a sweep goes on)
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    row["ops"], row["plans"] = marks.ops, marks.plans
    row["ms"] = round(1000 * (time.monotonic() - began))
    return row


def kernels(events: Sequence[Any]) -> list[list[str]]:
    """Names of the kernels within each span of a profile."""
    spans = [each for each in events if each.name().startswith("memplan:") and "CPU" in str(each.device_type())]
    ran = sorted((each for each in events if "CUDA" in str(each.device_type())), key=lambda each: each.start_ns())
    found = []
    for span in sorted(spans, key=lambda each: each.start_ns()):
        begin, end = span.start_ns(), span.start_ns() + span.duration_ns()
        inside = [each.name() for each in ran if begin <= each.start_ns() <= end]
        found.append([re.sub(r"\s+", " ", name)[:140] for name in inside if not name.startswith("memplan:")])
    return found
