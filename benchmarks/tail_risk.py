"""The chance that drawn lengths run out of memory, predicted and drawn: ten small jobs, each near its card's limit.

    python benchmarks/tail_risk.py [--runs 1000] [--only NAME …]

What is drawn shares neither seeds nor sizes with the prediction: every length that can come is traced, its own requests
are played (no sizes by polynomials, no families), and runs are counted. Where only the longest length fails, the chance
is known by arithmetic, too. Prints Markdown; ``benchmarks/results/tail_risk.txt`` keeps the last run. Needs no GPU.
"""

import argparse
import platform
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.replay.allocator import make_caching
from memplan.replay.conf import parse_conf
from memplan.replay.play import Player
from memplan.replay.records import Request
from memplan.simulate.family import TracedLength
from memplan.simulate.from_job import streams_of
from memplan.simulate.lengths import Drawn, Listed, draw, parse_distribution, possible, share_from
from memplan.simulate.tail import TailPlan, share_interval
from memplan.simulate.tail_of_job import tail_of
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job

GPU = load_profile("a100-40g")
POINTS = 3.0
"""How far apart the two may be."""
HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

def model():
    return Net()

def batch(batch_size, seq_len=64):
    return torch.randint(100, (batch_size, seq_len))

def loss(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch.flatten())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(100, {width}), nn.Linear({width}, 100)
"""
ATTENTION = """        self.blocks = nn.ModuleList(nn.Linear({width}, 3 * {width}) for _ in range(3))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            q, k, v = block(x).unflatten(-1, (3, 4, {width} // 4)).permute(2, 0, 3, 1, 4)
            x = x + ({mixed}).transpose(1, 2).flatten(2)
        return self.head(x)
"""
FUSED = ATTENTION.replace("{mixed}", "F.scaled_dot_product_attention(q, k, v, is_causal=True)")
BY_HAND = ATTENTION.replace("{mixed}", "(q @ k.mT / 4).softmax(-1) @ v")
LAYERS = """        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear({width}, 4 * {width}), nn.GELU(),
                                                    nn.Linear(4 * {width}, {width})) for _ in range(3)))

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, its lengths and its card."""

    name: str
    body: str
    """The rest of the model."""
    width: int
    lengths: str
    """As typed; a text of numbers is a file's lines."""
    at: float
    """The card holds steps of this length of all possible ones, as a share of them, alone in an empty allocator."""
    steps: int = 20
    batch_size: int = 64
    conf: str = ""


CASES = (
    Case(name="attention", body=FUSED, width=64, lengths="uniform:200-223", at=0.95),
    Case(name="attention, more room", body=FUSED, width=64, lengths="uniform:212-235", at=0.5),
    Case(name="attention by hand", body=BY_HAND, width=64, lengths="uniform:166-189", at=0.95),
    Case(name="attention by hand, expandable", body=BY_HAND, width=64, lengths="uniform:166-189", at=0.7,
         conf="expandable_segments:True"),
    Case(name="layers", body=LAYERS, width=128, lengths="normal:120,5,min=110,max=132", at=0.8, steps=40),
    Case(name="layers, expandable", body=LAYERS, width=128, lengths="lognormal:120,0.1,min=110,max=132", at=0.85,
         steps=40, conf="expandable_segments:True"),
    Case(name="a file of lengths", body=LAYERS, width=256, lengths="60 " * 20 + "80 " * 10 + "100 " * 5 + "160", at=0.7,
         steps=30),
    Case(name="a file, attention by hand", body=BY_HAND, width=64, lengths="90 " * 60 + "120 " * 39 + "300", at=0.7,
         steps=50),
    Case(name="long ones are rare", body=FUSED, width=128, lengths="80 " * 40 + "100 " * 9 + "250", at=0.7, steps=10),
    Case(name="nearly all fit", body=LAYERS, width=128, lengths="uniform:116-139", at=1.0, steps=40),
)  # fmt: skip


def main() -> int:
    """Print the table; 1 where a prediction is further off than it may be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[], help="names of jobs")
    options = parser.parse_args()
    runs, chosen = options.runs, [case for case in CASES if not options.only or case.name in options.only]
    print(f"torch {torch.__version__}, Python {platform.python_version()}; {runs} runs drawn for each job\n")
    print(
        "| job | lengths | steps | predicted, 95 % | drawn, 95 % | by arithmetic | points apart |\n" + "|---" * 7 + "|"
    )
    with tempfile.TemporaryDirectory() as folder:
        off = [_line(case, Path(folder), runs) for case in chosen]
    within = sum(each <= POINTS for each in off)
    print(f"\n{within} of {len(off)} within {POINTS:.0f} points; mean {sum(off) / len(off):.1f}, worst {max(off):.1f}")
    return int(within < len(off))


def _line(case: Case, folder: Path, runs: int) -> float:
    path = folder / "net.py"
    path.write_text(HEAD.replace("{width}", str(case.width)) + case.body.replace("{width}", str(case.width)))
    spec = JobSpec(target=FileTarget(path=path), batch_size=case.batch_size)
    distribution = _distribution(case.lengths)
    traced = {length: _traced(spec, length) for length in possible(distribution)}
    sizes = {length: _alone(each, case.conf) for length, each in traced.items()}
    limit = sorted(sizes.values())[min(int(case.at * len(sizes)), len(sizes) - 1)]
    tail, _ = tail_of(spec, GPU, TailPlan(distribution=distribution, steps=case.steps, seed=0), case.conf)
    predicted = tail.chance(limit)
    # Equal where requests differ in nothing but their sizes.
    names = {length: hash(each.shape) for length, each in traced.items()}
    make = partial(_Drawn, traced, names, case.conf, limit)
    failed = sum(_runs_out(make, distribution, case.steps, f"drawn/{run}") for run in range(runs))
    low, high = share_interval(failed, runs)
    words = case.lengths if ":" in case.lengths else f"{len(case.lengths.split())} lines"
    points = 100 * abs(predicted.chance - failed / runs)
    print(
        f"| {case.name} | {words} | {case.steps} | {_share(predicted.chance, predicted.low, predicted.high)} "
        f"| {_share(failed / runs, low, high)} | {_arithmetic(distribution, sizes, limit, case.steps)} "
        f"| {points:.1f} |",
        flush=True,
    )
    return points


def _distribution(text: str) -> Drawn:
    if ":" not in text:
        return Listed(lengths=tuple(map(int, text.split())))
    found = parse_distribution(text)
    assert not hasattr(found, "length")
    return found


def _traced(spec: JobSpec, length: int) -> TracedLength:
    given = JobSpec(target=spec.target, batch_size=spec.batch_size, seq_len=length)
    return streams_of(trace_job(partial(load_source, given), given, DeviceTraits.of(GPU)))


def _alone(traced: TracedLength, conf: str) -> int:
    """What steps of one length reserve in an empty allocator without a limit."""
    run = _Drawn({traced.length: traced}, {traced.length: 0}, conf, None)
    assert all(run.steps([traced.length] * (len(traced.warm_up) + 2)))
    return run.player.peak_reserved


def _runs_out(make: Callable[[], "_Drawn"], lengths: Drawn, steps: int, seed: str) -> bool:
    source = random.Random(seed)
    return not all(make().steps([draw(lengths, source) for _ in range(steps)]))


class _Drawn:
    """One run: the requests of the traces of its very lengths, one after the other."""

    def __init__(
        self, traced: Mapping[int, TracedLength], names: Mapping[int, int], conf: str, limit: int | None
    ) -> None:
        self.player = Player(make_caching(parse_conf(conf), limit_bytes=limit, device_bytes=GPU.total_bytes))
        self._traced, self._names = traced, names

    def steps(self, lengths: list[int]) -> Iterator[bool]:
        """Play a run; for each step, could it be served?"""
        first = self._traced[lengths[0]]
        yield self._play(first.set_up)
        for index in range(len(first.warm_up)):
            step = self._traced[lengths[index]]
            # The first step's names are in use; where another length has other requests, it is played again.
            known = step if self._names[step.length] == self._names[first.length] else first
            yield self._play(known.warm_up[index])
        live = self.player.live
        left = {label: live[old] for label, old, _ in first.carried}
        for length in lengths[len(first.warm_up) :]:
            step = self._traced[length]
            live.clear()
            live.update({old: left.pop(label) for label, old, _ in step.carried if label in left})
            for block in left.values():
                self.player.allocator.free(block)
            assert all(old in live for _, old, _ in step.carried)
            yield self._play(step.step)
            left = {label: live[new] for label, _, new in step.carried if new in live}

    def _play(self, requests: tuple[Request, ...]) -> bool:
        return self.player.play(requests)


def _arithmetic(lengths: Drawn, sizes: Mapping[int, int], limit: int, steps: int) -> str:
    """Where the longest alone is too large, and by far: how likely it is drawn."""
    longest, *rest = sorted(sizes, reverse=True)
    if sizes[longest] <= limit or (rest and sizes[rest[0]] * 1.2 > sizes[longest]):
        return ""
    return f"{100 * (1 - (1 - share_from(lengths, longest)) ** steps):.1f} %"


def _share(share: float, low: float, high: float) -> str:
    return f"{100 * share:.1f} [{100 * low:.1f} to {100 * high:.1f}] %"


if __name__ == "__main__":
    sys.exit(main())
