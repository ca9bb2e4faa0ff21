"""Adaptive batches: what the step wrapper costs, how many tries a finder takes beside its peers, and what is equal."""

import gc
import logging
import math
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memplan.runtime.adaptive.finder import find_batch
from memplan.runtime.adaptive.gradient_norms import GradientNorms, squared_norm
from memplan.runtime.adaptive.micro_batch import AutoMicroBatch
from memplan.runtime.adaptive.noise_scale import NoiseScale, moments_of_parts, with_step
from runtime_figures.figure import Figure


def figures(*, quick: bool) -> Iterator[Figure]:
    """All of them."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield from overhead(pairs=2 if quick else 100)
    yield from finders(capacities=1 if quick else 20)
    yield equality(cases=5 if quick else 1000)
    yield noise_scale(steps=50 if quick else 5000)
    yield from ranks(steps=5 if quick else 300)


# What a step costs.


def overhead(*, pairs: int) -> Iterator[Figure]:
    """The wrapper around steps in which nothing fails."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    batch = torch.randn(8, 32, 256)
    plain, wrapped = stepping(model, batch)
    ratio, control = paired(plain, wrapped, pairs=pairs), paired(plain, plain, pairs=pairs)
    yield Figure(
        f"AutoMicroBatch: step of a 6-layer transformer (4.7 M parameters, 256 tokens), CPU time, {pairs} pairs",
        f"{ratio:.4f} times the plain step (which is {control:.4f} times itself)",
        "< 1.01",
        ratio < 1.01,
    )
    small = nn.Linear(4, 4)
    plain, wrapped = stepping(small, torch.randn(2, 4))
    times = [(seconds(plain), seconds(wrapped)) for _ in range(pairs * 10)]
    extra = statistics.median(other - one for one, other in times)
    yield Figure("the same in absolute terms: a single linear layer", f"{extra * 1e6:.0f} µs a step")


def stepping(model: nn.Module, batch: torch.Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """A plain step and a wrapped one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def loss_for(part: torch.Tensor) -> torch.Tensor:
        return model(part).pow(2).mean()

    step = AutoMicroBatch(model, loss_for)

    def plain() -> None:
        optimizer.zero_grad()
        loss_for(batch).backward()
        optimizer.step()

    def wrapped() -> None:
        optimizer.zero_grad()
        step(batch)
        optimizer.step()

    for run in (plain, wrapped) * 3:
        run()
    return plain, wrapped


def paired(plain: Callable[[], object], wrapped: Callable[[], object], *, pairs: int) -> float:
    """Median of ratios of neighbours; who goes first changes."""
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            other, one = seconds(wrapped), seconds(plain)
        else:
            one, other = seconds(plain), seconds(wrapped)
        ratios.append(other / one)
    return statistics.median(ratios)


def seconds(run: Callable[[], object]) -> float:
    """CPU time of this process: others on the machine do not count."""
    began = time.process_time()
    run()
    return time.process_time() - began


def wall_seconds(run: Callable[[], object]) -> float:
    """Wall time, where processes wait for each other."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


# Finders beside each other: a step that fails above a capacity, and counts.


def finders(*, capacities: int) -> Iterator[Figure]:
    """Tries, and whether the answer is the largest that runs."""
    gc.freeze()  # Two of the peers collect garbage in every try, and this process holds a lot that is none.
    draw = random.Random(1)
    wanted = [round(2 ** draw.uniform(3, 12)) for _ in range(capacities)]
    near = [max(1, round(each * draw.uniform(0.98, 1.02))) for each in wanted]
    searches: dict[str, Callable[[int, int], tuple[int, int]]] = {
        "find_batch, prediction within 2 %": lambda capacity, guess: ours(capacity, prediction=guess),
        "find_batch, prediction exact": lambda capacity, _: ours(capacity, prediction=capacity),
        "find_batch, no prediction": lambda capacity, _: ours(capacity),
        "accelerate find_executable_batch_size, starting at 4096": lambda capacity, _: accelerates(capacity, 4096),
        "the same, starting at its default 128": lambda capacity, _: accelerates(capacity, 128),
        "Lightning BatchSizeFinder, power (default)": lambda capacity, _: lightnings(capacity, "power"),
        "the same, binsearch, margin 0": lambda capacity, _: lightnings(capacity, "binsearch", margin=0.0),
        "the same, binsearch": lambda capacity, _: lightnings(capacity, "binsearch"),
    }
    for name, search in searches.items():
        try:
            found = [search(capacity, guess) for capacity, guess in zip(wanted, near, strict=True)]
        except ImportError as error:
            yield Figure(name, f"not run: {error}")
            continue
        largest = sum(size == capacity for (size, _), capacity in zip(found, wanted, strict=True))
        share = statistics.median(size / capacity for (size, _), capacity in zip(found, wanted, strict=True))
        over = sum(size > capacity for (size, _), capacity in zip(found, wanted, strict=True))
        tries = [count for _, count in found]
        value = (
            f"{statistics.median(tries):g} tries (most {max(tries)}); largest in {largest} of {len(wanted)}, "
            f"median {share:.2f} of it" + (f"; {over} too large" if over else "")
        )
        is_ours = name.startswith("find_batch")
        yield Figure(
            f"{name}; capacities of 8 to 4096",
            value,
            ("all largest, 2 tries" if "exact" in name else "all largest") if is_ours else "",
            (largest == len(wanted) and ("exact" not in name or max(tries) == 2)) if is_ours else None,
        )


def ours(capacity: int, **options: int) -> tuple[int, int]:
    """Size and tries of memplan."""
    found = find_batch(lambda size: survive(size, capacity), release=lambda: None, **options)
    return found.size, len(found.tries)


def accelerates(capacity: int, start: int) -> tuple[int, int]:
    """Size and tries of accelerate."""
    from accelerate.utils import find_executable_batch_size

    tried = []

    @find_executable_batch_size(starting_batch_size=start)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        survive(batch_size, capacity)
        return batch_size

    return train(), len(tried)


def lightnings(capacity: int, mode: str, **options: float) -> tuple[int, int]:
    """Size and tries of Lightning, one step each, with the rest as it comes."""
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    tried: list[int] = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 2
            self.layer = nn.Linear(1, 1)

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            tried.append(len(batch[0]))
            survive(len(batch[0]), capacity)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

        def train_dataloader(self) -> torch.utils.data.DataLoader[torch.Tensor]:
            rows = torch.utils.data.TensorDataset(torch.zeros(10_000, 1))
            return torch.utils.data.DataLoader(rows, batch_size=self.batch_size)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        size = Tuner(trainer).scale_batch_size(Module(), mode=mode, steps_per_trial=1, **options)
    return int(size or 0), len(tried)


def survive(size: int, capacity: int) -> None:
    """What CUDA would say; all three know these words."""
    if size > capacity:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


# What is equal.


def equality(*, cases: int) -> Figure:
    """Steps that die at a random moment of forward or backward, against the step of the whole batch."""
    draw = random.Random(2)
    worst, died = 0.0, 0
    for _ in range(cases):
        batch = (torch.randn(draw.randint(2, 30), 8, dtype=torch.float64),)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).double()
        expected = torch.autograd.grad(model(batch[0]).pow(2).mean(), list(model.parameters()))
        countdown = Countdown(draw.randint(0, 12))
        step = AutoMicroBatch(
            nn.ModuleList([model]), lambda part, model=model, fuse=countdown: fuse(model, part[0]).pow(2).mean(),
            micro_batch=draw.choice([None, 3, 7]), release=lambda: None,
        )  # fmt: skip
        step(batch)
        died += countdown.fired
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            scale = float(gradient.abs().max())
            worst = max(worst, float((parameter.grad - gradient).abs().max()) / scale)
    return Figure(
        f"gradients after {died} of {cases} steps died somewhere, float64, against the whole batch's",
        f"largest relative difference {worst:.1e}",
        "≤ 1e-12",
        worst <= 1e-12,
    )


class Countdown:
    """Runs out of memory once, at one of a step's forwards or backwards of layers."""

    def __init__(self, left: int) -> None:
        self.left, self.fired = left, False

    def __call__(self, model: nn.Sequential, rows: torch.Tensor) -> torch.Tensor:
        """Forward of a model, layer by layer."""
        for layer in model:
            self.tick()
            rows = layer(rows)
            rows.register_hook(lambda _: self.tick())
        return rows

    def tick(self) -> None:
        """One of those moments."""
        self.left -= 1
        if self.left == -1:
            self.fired = True
            survive(1, 0)


def noise_scale(*, steps: int) -> Figure:
    """Linear regression on Gaussian rows: the gradient's mean and covariance are known."""
    width, spread, rows, part = 6, 0.7, 16, 4
    target = torch.linspace(-1, 1, width, dtype=torch.float64)
    model = nn.Linear(width, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    distance = float(target @ target)
    true = ((width + 1) * distance + width * spread**2) / distance
    scale = NoiseScale(decay=1.0)
    with GradientNorms(model) as norms:

        def backward(loss: torch.Tensor) -> None:
            loss.backward()
            norms.end_of_pass()

        def loss_for(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return (model(batch[0])[:, 0] - batch[1]).pow(2).mean() / 2

        step = AutoMicroBatch(model, loss_for, micro_batch=part, backward=backward, patience=10**9)
        for _ in range(steps):
            inputs = torch.randn(rows, width, dtype=torch.float64)
            model.zero_grad()
            done = step((inputs, inputs @ target + spread * torch.randn(rows, dtype=torch.float64)))
            squared = [each * (rows / part) ** 2 for each in norms.squared()]
            scale = with_step(scale, moments_of_parts(squared, list(done.samples), whole=squared_norm(model)))
    error = scale.samples / true - 1 if scale.is_known else math.nan
    return Figure(
        f"noise scale of a linear regression ({true:.1f} samples) from micro-batches of {part}, {steps} steps",
        f"{scale.samples:.2f} samples, {error:+.1%}" if scale.is_known else "not known",
        "within 5 %",
        abs(error) < 0.05,
    )


# Two processes.


def ranks(*, steps: int) -> Iterator[Figure]:
    """One rank alone runs out of memory; and what agreement costs where none does."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder, steps), nprocs=2)
        worst, own, ddp = map(float, (Path(folder) / "answer").read_text("ascii").split())
    yield Figure(
        "two processes (gloo), rank 1 alone runs out: gradients against DistributedDataParallel's",
        f"largest relative difference {worst:.1e}",
        "≤ 1e-12",
        worst <= 1e-12,
    )
    yield Figure(
        "two processes: step of a 1 M-parameter MLP, averaged after backward, against DistributedDataParallel",
        f"{own / ddp:.2f} times ({own * 1e3:.1f} ms, {ddp * 1e3:.1f} ms; {steps} of each, medians)",
    )


def _rank(rank: int, folder: str, steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512)).double()
    ddp = DistributedDataParallel(model)
    rows = torch.randn(16, 512, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    ddp(rows).pow(2).mean().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    countdown = Countdown(4 if rank else -2)
    dying = AutoMicroBatch(ddp, lambda part: countdown(model, part).pow(2).mean(), release=lambda: None)
    model.zero_grad()
    assert dying(rows).retries == 1
    worst = max(
        float((parameter.grad - gradient).abs().max() / gradient.abs().max())
        for parameter, gradient in zip(model.parameters(), expected, strict=True)
    )
    step = AutoMicroBatch(ddp, lambda part: ddp(part).pow(2).mean())
    own, plain = [], []
    for _ in range(steps):
        own.append(wall_seconds(lambda: step(rows)))
        plain.append(wall_seconds(lambda: ddp(rows).pow(2).mean().backward()))
    if rank == 0:
        answer = f"{worst} {statistics.median(own)} {statistics.median(plain)}"
        (Path(folder) / "answer").write_text(answer, "ascii")
    dist.barrier()
    dist.destroy_process_group()
