"""Twelve small training loops that leak and twelve that do not, each with what it keeps by arithmetic on its shapes.

A loop takes how many steps to run and what to call at the end of each. They were written before the detector was; the
benchmark runs the same table.
"""

import gc
import io
import logging
import queue
import random
import threading
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Tick = Callable[[], object]
ROWS, WIDTH, HIDDEN, CLASSES = 16, 32, 64, 8
FLOAT, LONG = 4, 8
BATCH = ROWS * WIDTH * FLOAT
ACTIVATION = ROWS * HIDDEN * FLOAT
LOGITS = ROWS * CLASSES * FLOAT
TARGETS = ROWS * LONG
SCALAR = FLOAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A loop and the truth about it."""

    loop: Callable[[int, Tick], None]
    """Runs so many steps, and calls back at the end of each."""
    bytes_per_step: float = 0
    """What it leaks, by arithmetic; 0: nothing."""
    code: str = ""
    """The cause to be named."""
    chain: str = ""
    """Part of the path by which it is kept."""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))


def update(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """One ordinary step."""
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


# --- Leaks --------------------------------------------------------------------------------------------------------


def losses_kept(steps: int, tick: Tick) -> None:
    """The best known of all: ``losses.append(loss)``. Backward has freed the graph's buffers; the scalar stays."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        losses.append(update(model, optimizer, *batch()))
        tick()


def outputs_kept(steps: int, tick: Tick) -> None:
    """Outputs of an evaluation without ``no_grad``, each with its graph: input, activation, logits."""
    model = network()
    outputs = []
    for _ in range(steps):
        x, _ = batch()
        outputs.append(model(x))
        tick()


def hook_every_step(steps: int, tick: Tick) -> None:
    """A hook is registered every step, and its default argument keeps the batch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = batch()
        model[0].register_forward_hook(lambda module, args, output, seen=x: None)
        update(model, optimizer, x, y)
        tick()


def cache_by_step(steps: int, tick: Tick) -> None:
    """A kilobyte a step into a dict keyed by step, under noise of up to two megabytes."""
    chance, cache, last = random.Random(0), {}, None
    model = network()
    for step in range(steps):
        x, _ = batch()
        last = torch.randn(chance.randrange(1, 1024), 512)
        cache[step] = model(x).detach().mean(dim=1).repeat(16) + last[0, 0]
        tick()
    del last


CACHED = ROWS * 16 * FLOAT


def tracebacks_kept(steps: int, tick: Tick) -> None:
    """Errors kept for a report at the end; each holds its traceback, and that the frame's variables."""

    def risky(x: Tensor) -> None:
        doubled = x * 2
        raise ValueError(f"bad batch of {len(doubled)}")

    errors = []
    for _ in range(steps):
        x, _ = batch()
        try:
            risky(x)
        except ValueError as error:
            errors.append(error)
        tick()


def state_carried(steps: int, tick: Tick) -> None:
    """A recurrent state carried on without ``detach``: every step's input and state stay in the graph."""
    torch.manual_seed(0)
    into, over = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
    state = torch.zeros(ROWS, HIDDEN)
    for _ in range(steps):
        x, _ = batch()
        state = torch.tanh(into(x) + over(state))
        tick()


def running_total(steps: int, tick: Tick) -> None:
    """``total = total + loss`` in an evaluation without ``no_grad``: nll_loss also saves targets and a weight."""
    model = network()
    total = torch.zeros(())
    for _ in range(steps):
        x, y = batch()
        total = total + cross_entropy(model(x), y)
        tick()


class Accuracy:
    """A metric as libraries write them: ``update`` every step, ``compute`` at the end, and ``reset``, forgotten."""

    def __init__(self) -> None:
        self.preds: list[Tensor] = []
        self.target: list[Tensor] = []

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.preds.append(preds.detach())
        self.target.append(target)

    def compute(self) -> float:
        return float((torch.cat(self.preds).argmax(1) == torch.cat(self.target)).float().mean())

    def reset(self) -> None:
        self.preds.clear()
        self.target.clear()


def metric_never_reset(steps: int, tick: Tick) -> None:
    model, metric = network(), Accuracy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = batch()
        update(model, optimizer, x, y)
        metric.update(model(x), y)
        tick()


def parameters_added(steps: int, tick: Tick) -> None:
    """A new parameter every step for the optimizer: its value, gradient and momentum."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        x, y = batch()
        added = nn.Parameter(torch.zeros(8, 8))
        optimizer.add_param_group({"params": [added]})
        optimizer.zero_grad()
        extra = sum(group["params"][0].sum() for group in optimizer.param_groups[1:])
        (cross_entropy(model(x), y) + extra).backward()
        optimizer.step()
        tick()


ADDED = 3 * 8 * 8 * FLOAT


class Trainer:
    """Knows itself, so that only the garbage collector can free it."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.callback = self.called

    def called(self) -> None:
        """Bound to itself."""


def cycles_with_collector_off(steps: int, tick: Tick) -> None:
    """Large runs switch the collector off for speed; then cycles stay."""
    gc.disable()
    try:
        for _ in range(steps):
            x, _ = batch()
            Trainer(x)
            tick()
    finally:
        gc.enable()
        gc.collect()


class Keeper(logging.Handler):
    """Keeps records to write them at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def log_records_kept(steps: int, tick: Tick) -> None:
    """A tensor as argument of a log record, in a handler that keeps records."""
    log = logging.Logger("training", logging.DEBUG)
    log.addHandler(Keeper())
    model = network()
    with torch.no_grad():
        for _ in range(steps):
            x, _ = batch()
            log.debug("logits %s", model(x))
            tick()


def create_graph(steps: int, tick: Tick) -> None:
    """Weights of an inner loop, abandoned with a gradient that has a graph: a cycle that no collector sees.

    The weights, their gradient, and the scalar that the product's derivative saves.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            weights = torch.randn(16, 16, requires_grad=True)
            (weights * weights).sum().backward(create_graph=True)
            del weights
            tick()


INNER = 2 * 16 * 16 * FLOAT + SCALAR

LEAKS = {
    "losses in a list": Program(
        loop=losses_kept, bytes_per_step=SCALAR, code="ML001", chain="losses_kept.losses["
    ),
    "outputs in a list": Program(
        loop=outputs_kept, bytes_per_step=BATCH + ACTIVATION + LOGITS, code="ML001", chain="outputs_kept.outputs["
    ),
    "a hook every step": Program(
        loop=hook_every_step, bytes_per_step=BATCH, code="ML003", chain="_forward_hooks["
    ),
    "a cache by step": Program(
        loop=cache_by_step, bytes_per_step=CACHED, code="ML004", chain="cache_by_step.cache["
    ),
    "tracebacks kept": Program(
        loop=tracebacks_kept, bytes_per_step=2 * BATCH, code="ML006", chain="tracebacks_kept.errors["
    ),
    "state carried on": Program(
        loop=state_carried, bytes_per_step=BATCH + ACTIVATION, code="ML002", chain="state_carried.state"
    ),
    "total of losses": Program(
        loop=running_total, bytes_per_step=BATCH + ACTIVATION + LOGITS + TARGETS + SCALAR, code="ML002",
        chain="running_total.total",
    ),
    "metric never reset": Program(
        loop=metric_never_reset, bytes_per_step=LOGITS + TARGETS, code="ML008", chain="metric.preds["
    ),
    "parameters added": Program(
        loop=parameters_added, bytes_per_step=ADDED, code="ML007", chain="param_groups["
    ),
    "cycles, collector off": Program(
        loop=cycles_with_collector_off, bytes_per_step=BATCH, code="ML005", chain="Trainer"
    ),
    "log records kept": Program(
        loop=log_records_kept, bytes_per_step=LOGITS, code="ML009", chain="records["
    ),
    "create_graph": Program(
        loop=create_graph, bytes_per_step=INNER, code="ML010", chain=".grad"
    ),
}  # fmt: skip


# --- Not leaks ----------------------------------------------------------------------------------------------------


def optimizer_warms_up(steps: int, tick: Tick) -> None:
    """State of Adam appears in the first step; workspaces and caches in the next ones."""
    model, warm = network(), []
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        update(model, optimizer, *batch())
        if step in (3, 7, 20):
            warm.append(torch.empty(1 << 16))
        tick()


def cache_fills(steps: int, tick: Tick) -> None:
    """Features of sixty images, computed when first seen; then all are there."""
    model, cache = network(), {}
    for step in range(steps):
        x, _ = batch()
        if step % 60 not in cache:
            cache[step % 60] = model(x).detach()
        tick()


def replay_buffer(steps: int, tick: Tick) -> None:
    """150 transitions at most."""
    model, buffer = network(), deque(maxlen=150)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        x, y = batch()
        buffer.append((x, y))
        update(model, optimizer, *random.choice(buffer))
        tick()


def evaluation(steps: int, tick: Tick) -> None:
    """Every tenth step evaluates, and what that made lives on until the next one."""
    model, held = network(), None
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        update(model, optimizer, *batch())
        held = [model(batch()[0]) for _ in range(20)] if step % 10 == 9 else None
        tick()
    del held


def lengths_vary(steps: int, tick: Tick) -> None:
    """Sequences of one to 512 tokens; the last output is still a variable when the step ends."""
    chance, model = random.Random(1), network()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        x = torch.randn(chance.randrange(1, 512), WIDTH)
        output = model(x)
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
        tick()


def cycles_collected(steps: int, tick: Tick) -> None:
    """A saw-tooth: the collector comes by every few hundred objects."""
    for _ in range(steps):
        x, _ = batch()
        for _ in range(8):
            Trainer(x + 1)
        tick()


def gradients_accumulate(steps: int, tick: Tick) -> None:
    """Gradients come with the first of four micro-batches and go after the last."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        x, y = batch()
        cross_entropy(model(x), y).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        tick()


def average_from_step_fifty(steps: int, tick: Tick) -> None:
    """A second copy of the weights from step 50 on."""
    model, average = network(), None
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        update(model, optimizer, *batch())
        if step == 50:
            average = [each.detach().clone() for each in model.parameters()]
        if average is not None:
            for kept, each in zip(average, model.parameters(), strict=True):
                kept.lerp_(each.detach(), 0.01)
        tick()


def curriculum(steps: int, tick: Tick) -> None:
    """Sequences grow for 120 steps, then stay."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        x = torch.randn(8 * min(step + 1, 120), WIDTH)
        output = model(x)
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
        tick()


def checkpoints(steps: int, tick: Tick) -> None:
    """Every 25 steps a checkpoint is written, from a copy that lives until the next."""
    model, copied = network(), {}
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        update(model, optimizer, *batch())
        if step % 25 == 24:
            copied = {name: each.detach().clone() for name, each in model.state_dict().items()}
            torch.save(copied, io.BytesIO())
        tick()
    del copied


def prefetch(steps: int, tick: Tick) -> None:
    """A thread that prepares up to eight batches."""
    ready: queue.Queue[tuple[Tensor, Tensor]] = queue.Queue(8)

    def produce() -> None:
        for _ in range(steps):
            ready.put(batch())

    producer = threading.Thread(target=produce)
    producer.start()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        update(model, optimizer, *ready.get())
        tick()
    producer.join()


def floats_logged(steps: int, tick: Tick) -> None:
    """What ``losses.append(loss.item())`` should have been."""
    model, losses = network(), []
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        losses.append(update(model, optimizer, *batch()).item())
        tick()


NOT_LEAKS = {
    "optimizer warms up": Program(loop=optimizer_warms_up),
    "a cache of sixty fills": Program(loop=cache_fills),
    "replay buffer of 150": Program(loop=replay_buffer),
    "evaluation every ten": Program(loop=evaluation),
    "lengths vary": Program(loop=lengths_vary),
    "cycles, collected": Program(loop=cycles_collected),
    "gradients accumulate": Program(loop=gradients_accumulate),
    "average from step 50": Program(loop=average_from_step_fifty),
    "curriculum of 120": Program(loop=curriculum),
    "checkpoint every 25": Program(loop=checkpoints),
    "prefetch of eight": Program(loop=prefetch),
    "floats logged": Program(loop=floats_logged),
}
PROGRAMS = LEAKS | NOT_LEAKS
STEPS = 300
"""Of every program: enough that the slowest of the non-leaks, a buffer of 150, has been full for as long."""
