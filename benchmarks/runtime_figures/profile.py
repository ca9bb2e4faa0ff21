"""What ``memplan.profile`` costs, at each depth, beside what others cost that write allocations down.

A step is run in short blocks, alternately without and with, and the ratio taken of neighbours; the figure is the
median. Times are of the processor, all threads of the process together, so that other programs do not show.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity

import memplan
from memplan.runtime.profile.records import Depth
from runtime_figures.figure import Figure

REGION_SECONDS = 1e-3
"""Length of a region that the cost of an idle one is compared with."""
BLOCK_SECONDS = 0.05
"""What a block of steps takes, about; it has one at least."""
FIGURE_SECONDS = 15
"""What all blocks of a figure take, about; there are no fewer than ``LEAST_PAIRS``."""
LEAST_PAIRS = 15
GOALS: dict[Depth, float] = {"counters": 1.01, "sampled": 1.02, "full": 1.05}
Step = Callable[[], None]


def figures(*, quick: bool) -> Iterator[Figure]:
    """All figures of the profiler."""
    torch.set_num_threads(1)
    nanoseconds = idle(1_000 if quick else 200_000)
    ratio = 1 + nanoseconds / 1e9 / REGION_SECONDS
    what = "a region of 1 ms that nobody records, against none"
    yield Figure(what, f"{ratio:.5f} ({nanoseconds:.0f} ns)", "< 1.001", ratio < 1.001)
    with memplan.profile(depth="counters"):
        nanoseconds = idle(1_000 if quick else 50_000)
    yield Figure("a region at depth counters", f"{nanoseconds / 1e3:.1f} us")
    for name, step in (("small GPT (6 x 256, 4 x 128)", gpt()), ("tiny MLP (3 x 256, batch 64)", mlp())):
        noise = overhead(step, nullcontext, quick=quick)
        yield Figure(f"{name}, step with nothing / without: the noise of these figures", f"{noise:.4f}")
        for depth, goal in GOALS.items():
            found = overhead(step, lambda depth=depth: memplan.profile("bench", depth=depth), quick=quick)
            yield Figure(f"{name}, step with depth {depth} / without", f"{found:.4f}", f"< {goal}", found < goal)
        yield Figure(
            f"{name}, step under torch.profiler(profile_memory=True) / without", peer(step, profiler, quick=quick)
        )
        yield Figure(f"{name}, step under memray / without", peer(step, memray, quick=quick))


def idle(times: int) -> float:
    """Nanoseconds of the processor that an empty region takes."""
    began = time.process_time_ns()
    for _ in range(times):
        with memplan.profile("idle"):
            pass
    with_region = time.process_time_ns() - began
    began = time.process_time_ns()
    for _ in range(times):
        pass
    return (with_region - (time.process_time_ns() - began)) / times


def overhead(step: Step, around: Callable[[], AbstractContextManager[object]], *, quick: bool) -> float:
    """Ratio of a step inside of a context and outside; what entering and leaving take is not in it."""
    step()
    once = block(step, 3) / 3e9
    steps = max(1, round(BLOCK_SECONDS / once))
    pairs = 2 if quick else max(LEAST_PAIRS, round(FIGURE_SECONDS / (2 * once * steps)))
    ratios = []
    for index in range(pairs):
        # Which of the two comes first alternates, so that a machine that grows slower favours neither.
        before = block(step, steps) if index % 2 else 0
        with around():
            step()
            inside = block(step, steps)
        ratios.append(inside / (before or block(step, steps)))
    return statistics.median(ratios)


def block(step: Step, steps: int) -> int:
    """Nanoseconds of the processor for some steps."""
    began = time.process_time_ns()
    for _ in range(steps):
        step()
    return time.process_time_ns() - began


def peer(step: Step, make: Callable[[], AbstractContextManager[object]], *, quick: bool) -> str:
    """The ratio of another tool, or why there is none."""
    try:
        make()
    except ImportError as error:
        return f"not measured: {error}"
    return f"{overhead(step, make, quick=quick):.4f}"


def profiler() -> AbstractContextManager[object]:
    """PyTorch's own, with allocations."""
    return torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def memray() -> AbstractContextManager[object]:
    """Bloomberg's memray: every ``malloc`` with its Python stack (https://bloomberg.github.io/memray/)."""
    import memray as package

    return package.Tracker(Path(tempfile.mkdtemp()) / "run.bin")


def mlp() -> Step:
    """A step of about a millisecond."""
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.ReLU())))
    batch = torch.randn(64, 256)
    return training(model, lambda: model(batch).square().mean())


def gpt() -> Step:
    """A step of some hundred milliseconds."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True, dropout=0.0)
    body = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    model = nn.ModuleDict({"embed": nn.Embedding(4096, 256), "body": body, "head": nn.Linear(256, 4096)})
    tokens = torch.randint(4096, (4, 128))
    mask = nn.Transformer.generate_square_subsequent_mask(128)

    def loss() -> torch.Tensor:
        hidden = model["body"](model["embed"](tokens), mask=mask, is_causal=True)
        return nn.functional.cross_entropy(model["head"](hidden).flatten(0, 1), tokens.flatten())

    return training(model, loss)


def training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    """One optimizer step, with a region around it as a user would put it."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        with memplan.profile("step"):
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

    return step
