"""Ask cuDNN how much memory it takes: thousands of convolutions and hundreds of recurrent layers, norms and attentions.

    python benchmarks/gpu/cudnn_space.py --out FILE.json [--seconds 140]
    python benchmarks/gpu/cudnn_space.py --out FILE.json --device cpu --seconds 10     # tries the script itself

For each call the file has the sizes that the allocator gave and took back within each op, in order, and which of
cuDNN's engines ran, where its frontend's log tells; of some convolutions also the names of their kernels. Before that
it measures by how much the memory outside the allocator grows with the first call of each library.

The calls are made in a child process: one that dies is replaced by another, which goes on behind
the case that killed it.
"""

import argparse
import datetime as dt
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from cudnn_calls import kernels, recorded, run
from cudnn_cases import cases

FORMAT = 1
BATCH = 20
"""Cases between two looks at the allocator's history."""
PROFILED_SHARE = 0.15
"""Of the time for all calls, what goes to calls whose kernels are named."""
MOST_CHILDREN = 12
MOST_ON_CPU = 300_000
"""About how many multiplications a case may have where the script is only tried."""
KEPT_LOG = 6000
"""Characters of the frontend's log that are kept as they are."""
ORDERS = (
    ("gemm", "gemm-bf16", "conv", "conv-backward", "conv-bf16", "batch-norm", "rnn", "attention", "cudnn-attention",
     "fft", "linalg", "sort", "index-put"),
    ("conv", "conv-backward", "gemm"),
    ("rnn", "gemm"),
    ("attention", "cudnn-attention", "gemm"),
)  # fmt: skip
"""What is called first, in processes of their own."""


def first_calls(device: torch.device) -> dict[str, Callable[[], Any]]:
    """Calls that make a library load."""
    image = torch.zeros(16, 64, 56, 56, device=device)
    layer = torch.nn.Conv2d(64, 128, 3, padding=1).to(device)
    half, low = torch.nn.Conv2d(64, 128, 3, padding=1).to(device, torch.bfloat16), torch.bfloat16
    square, words = torch.zeros(512, 512, device=device), torch.zeros(32, 16, 256, device=device)
    heads = torch.zeros(4, 8, 256, 64, device=device, dtype=low)
    rows = torch.zeros(512, dtype=torch.long, device=device)
    backends = torch.nn.attention.SDPBackend

    def attention(backend: Any) -> Any:
        with torch.nn.attention.sdpa_kernel([backend if device.type == "cuda" else backends.MATH]):
            return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)

    return {
        "gemm": lambda: square @ square,
        "gemm-bf16": lambda: square.to(low) @ square.to(low),
        "conv": lambda: layer(image),
        "conv-backward": lambda: layer(image).sum().backward(),
        "conv-bf16": lambda: half(image.to(low)),
        "batch-norm": lambda: torch.nn.BatchNorm2d(64).to(device)(image),
        "rnn": lambda: torch.nn.LSTM(256, 256).to(device)(words),
        "attention": lambda: attention(backends.FLASH_ATTENTION),
        "cudnn-attention": lambda: attention(backends.CUDNN_ATTENTION),
        "fft": lambda: torch.fft.fft2(square),
        "linalg": lambda: torch.linalg.cholesky(torch.eye(512, device=device)),
        "sort": square.sort,
        "index-put": lambda: square.clone().index_put_((rows,), square.clone(), accumulate=True),
    }


def contexts(device: torch.device, names: list[str]) -> list[list[Any]]:
    """Bytes that the device has given away outside the allocator: at the beginning, and after each first call."""
    if device.type != "cuda":
        for name in names:
            first_calls(device)[name]()
        return [[name, None, None] for name in ("context", *names)]

    def outside(name: str) -> list[Any]:
        torch.cuda.synchronize(device)
        free, total = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device)
        return [name, total - free - reserved, reserved]

    torch.cuda.init()
    found = [outside("context")]
    calls = first_calls(device)
    found.append(outside("fill"))
    for name in names:
        try:
            calls[name]()
            found.append(outside(name))
        except RuntimeError as error:
            found.append([name, f"{error}".splitlines()[0][:100], None])
    return found


def of_device(device: torch.device) -> Iterator[dict[str, Any]]:
    """The cases; on a CPU, which only tries the script, no large ones."""
    for case in cases():
        # Batch, channels, sides, filters, steps, hidden, heads and queries, whichever it has.
        sizes = [case.get(name, 1) for name in ("n", "c", "k", "t", "h", "i", "q")]
        sizes += [*case.get("s", []), *case.get("f", [])]
        if device.type == "cuda" or math.prod(sizes) < MOST_ON_CPU:
            yield case


def sweep(options: argparse.Namespace, device: torch.device) -> None:
    """Run cases from a number on until time is up; results go to a file of JSON lines, batch by batch."""
    log = Path(os.environ["CUDNN_FRONTEND_LOG_FILE"]) if "CUDNN_FRONTEND_LOG_FILE" in os.environ else None
    number, stream = options.start, islice(of_device(device), options.start, None)
    with options.part.open("a", encoding="utf-8") as file:
        while time.time() < options.until:
            batch: list[dict[str, Any]] = []
            found: dict[int, list[list[int]]] = {}
            with recorded(device, found):
                for case in islice(stream, BATCH):
                    if time.time() >= options.until:
                        break
                    options.progress.write_text(str(number), encoding="utf-8")
                    batch.append({"number": number, **run(case, number, device, log)})
                    number += 1
            outside = None
            if device.type == "cuda":
                free, total = torch.cuda.mem_get_info(device)
                outside = total - free - torch.cuda.memory_reserved(device)
            for row in batch:
                sizes = found.get(row["number"], [])
                file.write(json.dumps(compact(row, sizes)) + "\n")
            file.write(json.dumps({"outside": outside, "after": number}) + "\n")
            file.flush()
            if device.type == "cuda" and torch.cuda.memory_reserved(device) > 16 << 30:
                torch.cuda.empty_cache()


def profile(options: argparse.Namespace, device: torch.device) -> None:
    """Run convolutions from the first case on with their kernels named."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    stream = ((number, case) for number, case in enumerate(of_device(device)) if case["kind"] == "conv")
    with options.part.open("a", encoding="utf-8") as file:
        while time.time() < options.until:
            batch = list(islice(stream, BATCH if device.type == "cuda" else 2))
            with torch.profiler.profile(activities=activities) as done:
                rows = [run(case, number, device, None, profiled=device.type == "cuda") for number, case in batch]
            spans = kernels(done.profiler.kineto_results.events())
            for (number, _), row in zip(batch, rows, strict=True):
                # A span stands for each convolution that was tried.
                wanted = sum("conv" in op for op in row["ops"]) if device.type == "cuda" else 0
                file.write(json.dumps({"number": number, "kernels": spans[:wanted]}) + "\n")
                spans = spans[wanted:]
            file.flush()


def compact(row: dict[str, Any], sizes: list[list[int]]) -> dict[str, Any]:
    """A row without ops that say nothing."""
    complete = len(sizes) == len(row["ops"])
    ops = []
    for at, (name, plan) in enumerate(zip(row["ops"], row["plans"], strict=True)):
        inside = sizes[at] if complete else []
        wanted = "conv" in name if row["case"]["kind"] == "conv" else bool(inside) or "cudnn" in name
        if wanted:
            ops.append([name, inside, *([plan] if plan else [])])
    kept = {"n": row["number"], "case": row["case"], "ops": ops, "ms": row["ms"]}
    if "error" in row:
        kept["error"] = row["error"]
    if not complete:
        kept["marks"] = [len(sizes), len(row["ops"])]
    return kept


class Parent:
    """Starts the children, and writes the file.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = time.time()
        self.content: dict[str, Any] = {"format": FORMAT, "contexts": [], "notes": []}
        self.log_sample = ""

    def run(self) -> None:
        """Everything, in order of what matters most should time run out."""
        end = self.began + self.options.seconds
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for order in ORDERS:
                if time.time() < self.began + self.options.seconds / 4:
                    self._contexts(list(order), end)
            until = end - PROFILED_SHARE * (end - time.time()) - 5
            self._sweep(folder, until)
            self._write(folder)
            self._child(["--child", "profile", "--part", str(folder / "profile"), "--until", str(end - 6)], end - 2)
            self._write(folder)

    def _contexts(self, names: list[str], end: float) -> None:
        done = self._child(["--child", "contexts", "--names", *names], end)
        try:
            self.content["contexts"].append(json.loads(done.splitlines()[-1]))
        except (ValueError, IndexError):
            self.content["notes"].append(f"first calls {names}: {done[-300:]}")

    def _sweep(self, folder: Path, until: float) -> None:
        log, progress = folder / "log", folder / "progress"
        start = 0
        for _ in range(MOST_CHILDREN):
            if time.time() >= until:
                break
            words = ["--child", "sweep", "--start", str(start), "--part", str(folder / "part"), "--until", str(until)]
            said = self._child([*words, "--progress", str(progress)], until + 8, log)
            reached = int(progress.read_text("utf-8")) if progress.exists() else -1
            if time.time() < until:
                self.content["notes"].append(f"case {reached} ended its process: {said[-300:]}")
            start = max(reached, start) + 1
        if log.exists():
            with log.open(encoding="utf-8", errors="replace") as file:
                self.log_sample = file.read(KEPT_LOG)

    def _child(self, words: list[str], end: float, log: Path | None = None) -> str:
        """Run this file again; what it printed."""
        variables = {"CUDNN_FRONTEND_LOG_INFO": "1", "CUDNN_FRONTEND_LOG_FILE": str(log)} if log else {}
        command = [sys.executable, __file__, "--out", str(self.options.out), "--device", self.options.device, *words]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=max(1.0, end - time.time()),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return f"its time was up: {(error.stdout or b'')[-200:]!r}"
        return done.stdout

    def _write(self, folder: Path) -> None:
        names: dict[str, int] = {}
        rows, outside = [], []
        for line in _lines(folder / "part"):
            if "outside" in line:
                outside.append([line["after"], line["outside"]])
            else:
                rows.append(line)
        known = {row["n"]: row for row in rows}
        for line in _lines(folder / "profile"):
            if line["number"] in known:
                spans = [[names.setdefault(name, len(names)) for name in span] for span in line["kernels"]]
                known[line["number"]]["kernels"] = spans
        self.content |= {
            "environment": environment(self.options.device),
            "outside": outside,
            "cases": rows,
            "kernel_names": list(names),
            "log_sample": self.log_sample,
            "seconds": round(time.time() - self.began, 1),
        }
        head = {key: value for key, value in self.content.items() if key != "cases"}
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        text = json.dumps(head, separators=(",", ":"))[:-1] + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n"
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options.out.write_text(text, encoding="utf-8")
        failed = sum("error" in row for row in rows)
        print(f"{len(rows)} cases, {failed} failed, {len(text)} bytes -> {self.options.out}", flush=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def environment(device: str) -> dict[str, Any]:
    """Everything that cuDNN's choice could depend on. It makes no CUDA context."""
    found: dict[str, Any] = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "flags": {
            "cudnn.benchmark": torch.backends.cudnn.benchmark,
            "cudnn.deterministic": torch.backends.cudnn.deterministic,
            "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
            "matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        },
        "variables": {
            key: value for key, value in os.environ.items() if key.startswith(("CUDNN", "PYTORCH_", "TORCH_"))
        },
    }
    if device != "cpu":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        try:
            found["gpu"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            found["gpu"] = str(error)
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def main() -> None:
    """Measure, or be one of the children that do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=140.0, help="for everything")
    parser.add_argument("--child", choices=("contexts", "sweep", "profile"), help=argparse.SUPPRESS)
    parser.add_argument("--names", nargs="*", default=(), help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.child is None:
        Parent(options).run()
    elif options.child == "contexts":
        print(json.dumps(contexts(device, list(options.names))))
    elif options.child == "sweep":
        sweep(options, device)
    else:
        profile(options, device)


if __name__ == "__main__":
    main()
