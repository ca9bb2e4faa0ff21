"""Truth of ``--compile inductor`` on the CPU: predicted steps against real ones under ``torch.compile``.

Every model trains for real in a process of its own, compiled (``dynamic=False``), with AdamW, until the step has
settled; the next step's allocations are what ``torch.profiler`` sees of PyTorch's CPU allocator, one thread. The same
model is traced for the ``cpu`` device. Compared are the peak within the step, over what lives at its begin, and the
stream of allocations and frees in order; scalars of the optimizer's loop are left out. Usage::

    python benchmarks/compile_cpu.py [NAME ...]

Needs a C++ compiler, and transformers for the models named after theirs.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

BATCH = 8
SMALL = 16
"""Bytes: the scalars of a real optimizer's loop."""


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One batch."""
        return self.second(functional.dropout(functional.gelu(self.first(x)), 0.1, self.training))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One batch."""
        batch, length, width = x.shape
        heads = (
            part.view(batch, length, 4, width // 4).transpose(1, 2)
            for part in self.mixed(self.before(x)).split(width, 2)
        )
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Language(nn.Module):
    """A small GPT with tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(64, 64)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(64)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """One batch."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Convolutions(nn.Module):
    """Convolutions with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One batch."""
        return self.layers(x)


class Vision(nn.Module):
    """A small ViT."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 64, 8, 8), nn.Parameter(torch.zeros(1, 1, 64))
        self.places, self.head = nn.Parameter(torch.zeros(1, 17, 64)), nn.Linear(64, 10)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One batch."""
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.first.expand(y.shape[0], -1, -1), y], 1) + self.places
        for block in self.blocks:
            y = block(y)
        return self.head(y[:, 0])


def llama() -> nn.Module:
    """Two layers of transformers' Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 500}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))


def gpt2() -> nn.Module:
    """Two layers of transformers' GPT-2; Dynamo breaks its graph before the loss, where it logs a warning."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=500, n_positions=64))


def square(output: torch.Tensor, _: object) -> torch.Tensor:
    """A loss without labels."""
    return output.pow(2).mean()


def labelled(output: torch.Tensor, batch: Any) -> torch.Tensor:
    """Cross entropy over all that has a label."""
    return functional.cross_entropy(output.flatten(0, -2), batch[1].flatten())


def own(output: Any, _: object) -> torch.Tensor:
    """The model's own loss."""
    return output.loss


def tokens(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of text."""
    return torch.randint(0, 1000, (size, 64)), torch.randint(0, 1000, (size, 64))


def images(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of images."""
    return torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))


def texts(size: int) -> dict[str, torch.Tensor]:
    """A batch as transformers takes it."""
    return {name: torch.randint(0, 500, (size, 32)) for name in ("input_ids", "labels")}


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], Callable[[Any, Any], torch.Tensor]]] = {
    "perceptron": (Perceptron, lambda size: torch.randn(size, 64), square),
    "block": (Block, lambda size: torch.randn(size, 64, 64), square),
    "gpt": (Language, tokens, labelled),
    "convolutions": (Convolutions, images, labelled),
    "vit": (Vision, images, labelled),
    "transformers-llama": (llama, texts, own),
    "transformers-gpt2": (gpt2, texts, own),
}
"""Name → model, batch, loss."""


def real(name: str) -> list[int]:
    """Signed bytes of one settled step under the real ``torch.compile``."""
    make, batch, loss = CASES[name]
    return settled(make(), batch, loss)


def settled(
    model: nn.Module,
    batch: Callable[[int], Any],
    loss: Callable[[Any, Any], torch.Tensor],
    *,
    backend: str = "inductor",
) -> list[int]:
    """Signed bytes of what a model's step allocates and frees, compiled, once it has settled."""
    from memplan.runtime.profile.kineto import Profiler
    from memplan.validate.run import STEP

    model.compile(dynamic=False, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters())
    kept: dict[str, Any] = {}

    def step() -> None:
        kept.pop("batch", None)
        kept["batch"] = batch(BATCH)
        kept["output"] = called(model, kept["batch"])
        kept["loss"] = loss(kept["output"], kept["batch"])
        kept["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    step()
    profiler = Profiler()
    profiler.start()
    for _ in range(2):
        # Only what the first of them allocates is the profiler sure to see freed in the second.
        with record_function(STEP):
            step()
    run = profiler.finish(STEP.__eq__)
    return [event.nbytes for event in run.events if run.starts[1] <= event.nanoseconds <= run.ends[1]]


def called(model: nn.Module, batch: Any) -> Any:
    """The model's output, as memplan's loop calls it."""
    from memplan.job.defaults import caller

    return caller()(model, batch)


def predicted(name: str) -> list[int]:
    """The same from a trace."""
    from memplan.job.source import ModelSource
    from memplan.job.spec import FileTarget, JobSpec
    from memplan.tracing.records import DeviceTraits
    from memplan.tracing.run import trace_job

    make, batch, loss = CASES[name]
    source = ModelSource(model=make, batch=lambda size, _: batch(size), loss=loss)
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=BATCH, compile="inductor")
    trace = trace_job(lambda: source, spec, DeviceTraits(kind="cpu"))
    step, sizes = trace.steps[-1], [storage.nbytes for storage in trace.storages]
    events = trace.events[step.first_event : step.end_event]
    return [sizes[event.storage] * (1 if event.action == "alloc" else -1) for event in events]


def in_child(side: str, name: str) -> list[int]:
    """Run one side in a fresh process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, __file__, f"--{side}", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    return [size for size in json.loads(done.stdout.strip().splitlines()[-1]) if abs(size) > SMALL]


def main(names: list[str]) -> None:
    """Print the table."""
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {time.strftime('%Y-%m-%d')}")
    print(f"{'model':<20}{'real peak':>12}{'predicted':>12}{'error':>9}{'events':>8}  same stream")
    for name in names or CASES:
        truth, guess = in_child("real", name), in_child("predicted", name)
        peaks = max(accumulate(truth)), max(accumulate(guess))
        error = 100 * (peaks[1] / peaks[0] - 1)
        same = "yes" if truth == guess else f"no ({len(guess)} events)"
        print(f"{name:<20}{peaks[0]:>12,}{peaks[1]:>12,}{error:>+8.2f}%{len(truth):>8}  {same}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] in (["--real"], ["--predicted"]):
        torch.set_num_threads(1)
        print(json.dumps({"--real": real, "--predicted": predicted}[sys.argv[1]](sys.argv[2])))
    else:
        main(sys.argv[1:])
