"""Ask PyTorch's own kernels what they take: products by their work spaces, sorts and running sums by their lengths.

    python benchmarks/gpu/operators.py --out FILE.json [--device cpu]

For each call the file has the sizes that the allocator gave (+) and took back (-), in order, its results among them.
Libraries' work spaces are cleared before each product, so that each shows its own. It needs PyTorch alone.
A CPU has no such history: there, small calls try the script itself. ``cudnn_space.py`` asks cuDNN.
"""

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.cuda.memory import _record_memory_history as record_history
from torch.cuda.memory import _snapshot as snapshot
from torch.nn import functional

FORMAT = 1
LENGTHS = (1, 16, 512, 1024, 2048, 3073, 4096, 8192, 16_384, 32_768, 65_536, 262_144, 1_000_000, 4_000_000)
SHAPES = ((64, 64, 64), (1, 64, 64), (64, 1, 64), (64, 64, 1), (63, 65, 67), (4096, 1024, 1024))
PRODUCT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
GROUPS = (1, 2, 3, 8, 16, 64)
ROWS, WIDTH = 1000, 8
Call = Callable[[], Any]
clear_workspaces: Callable[[], None] = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)  # noqa: SLF001


def products(device: torch.device) -> Iterator[tuple[str, Call]]:
    """Products of two matrices, with and without a bias."""
    for dtype in PRODUCT_TYPES:
        for rows, inner, columns in SHAPES if device.type == "cuda" else SHAPES[:4]:
            left, right = (torch.ones(shape, device=device, dtype=dtype) for shape in ((rows, inner), (inner, columns)))
            bias = torch.ones(columns, device=device, dtype=dtype)
            shape = f"{dtype} {rows}x{inner}x{columns}"
            yield f"mm {shape}", lambda a=left, b=right: a @ b
            yield f"addmm {shape}", lambda a=left, b=right, c=bias: torch.addmm(c, a, b)
            yield f"addmm scaled {shape}", lambda a=left, b=right, c=bias: torch.addmm(c, a, b, beta=0.5)
            yield f"addmm wide {shape}", lambda a=left, b=right, c=bias: torch.addmm(c.expand(len(a), -1), a, b)
            yield f"linear 3-D {shape}", lambda a=left, b=right, c=bias: functional.linear(a[None], b.t(), c)
            yield f"bmm {shape}", lambda a=left, b=right: torch.bmm(a[None], b[None])
            yield f"baddbmm {shape}", lambda a=left, b=right, c=bias: torch.baddbmm(c, a[None], b[None])
            yield f"mv {shape}", lambda a=left, b=right: torch.mv(a, b[:, 0].contiguous())
    eighths = torch.ones(64, 64, device=device, dtype=torch.int8)
    yield "int_mm", lambda: torch._int_mm(eighths, eighths)  # noqa: SLF001


def grouped(device: torch.device) -> Iterator[tuple[str, Call]]:
    """Grouped products, ragged in rows."""
    for groups in GROUPS:
        tokens = torch.ones(1024, 64, device=device, dtype=torch.bfloat16)
        experts = torch.ones(groups, 64, 128, device=device, dtype=torch.bfloat16)
        ends = torch.linspace(1024 / groups, 1024, groups, device=device).to(torch.int32)
        yield f"grouped {groups}", lambda a=tokens, b=experts, c=ends: torch.ops.aten._grouped_mm(a, b, c)  # noqa: SLF001


def along(device: torch.device) -> Iterator[tuple[str, Call]]:
    """What sorts, counts and sums up, by length and type."""
    for length in LENGTHS if device.type == "cuda" else LENGTHS[:3]:
        index = torch.randint(0, ROWS, (length,), device=device)
        keys = {"int64": index, "int32": index.int(), "float32": index.float(), "float16": index.half()}
        for name, values in {**keys, "bool": index > ROWS // 2}.items():
            yield f"sort {name} {length}", lambda x=values: x.sort()
            yield f"stable sort {name} {length}", lambda x=values: x.sort(stable=True)
            yield f"cumsum {name} {length}", lambda x=values: x.cumsum(0)
            yield f"nonzero {name} {length}", lambda x=values: x.nonzero()
        for name in ("int64", "int32"):
            yield f"embedding {name} {length}", lambda x=keys[name]: _gradient(lambda w: functional.embedding(x, w), x)
        yield f"index {length}", lambda x=index: _gradient(lambda w: w[x], x)
        yield f"unique {length}", lambda x=index: x.unique(return_inverse=True, return_counts=True)
        yield f"bincount {length}", lambda x=index: x.bincount()
        yield f"randperm {length}", lambda n=length: torch.randperm(n, device=device)
        yield f"topk {length}", lambda x=keys["float32"]: x.topk(min(len(x), 10))
        yield f"masked_select {length}", lambda x=index: x[x > ROWS // 2]


def _gradient(look_up: Callable[[torch.Tensor], torch.Tensor], index: torch.Tensor) -> Any:
    weights = torch.ones(ROWS, WIDTH, device=index.device, requires_grad=True)
    return torch.autograd.grad(look_up(weights).sum(), weights)


def events(call: Call, device: torch.device) -> list[int] | str:
    """Signed sizes of a call's allocations and frees, or why it failed."""
    if device.type == "cuda":
        clear_workspaces()
        record_history("all", context=None)
    try:
        call()
        if device.type != "cuda":
            return []
        torch.cuda.synchronize(device)
        trace = snapshot()["device_traces"][device.index or 0]
    except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
        return str(error).splitlines()[0][:120]
    finally:
        if device.type == "cuda":
            record_history(None)
    signs = {"alloc": 1, "free_completed": -1}
    return [signs[event["action"]] * event["size"] for event in trace if event["action"] in signs]


def main() -> None:
    """Make all calls, and write what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    found = {name: events(call, device) for family in (products, grouped, along) for name, call in family(device)}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    versions = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
    content = {"format": FORMAT, "device": name, "versions": versions, "events": found}
    options.out.write_text(json.dumps(content, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
