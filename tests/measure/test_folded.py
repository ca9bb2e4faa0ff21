"""A deep model's trace, made of shallow ones: the same in every record, or the whole model is traced."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from memplan.hardware.catalog import load_profile
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.source import Depth, ModelSource
from memplan.job.spec import JobSpec, PresetTarget
from memplan.measure.folded import depths_to_trace, folded_trace
from memplan.measure.measurer import trace_for
from memplan.tracing.fold.continued import continued
from memplan.tracing.records import Folded, Trace

Fold = Callable[..., Trace | Folded | None]

BLOCKS = 22
SPEC = JobSpec(target=PresetTarget(name="toy"), batch_size=3)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return result


class Model(nn.Module):
    """Blocks between an embedding and a head; ``odd`` of them have a second width."""

    def __init__(self, blocks: int, odd: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(Block(32), nn.Dropout(0.1)) if index in odd else Block(32) for index in range(blocks)
        )
        self.head = nn.Linear(32, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(x)
        return result


def source(blocks: int = BLOCKS, odd: frozenset[int] = frozenset(), period: int = 1) -> ModelSource:
    return ModelSource(
        model=lambda: Model(blocks, odd),
        batch=lambda size, _: torch.randint(0, 100, (size, 8)),
        loss=lambda output, _: output.sum(),
        depth=Depth(blocks=blocks, period=period, at=lambda fewer: source(fewer, odd, period)),
    )


def traced(spec: JobSpec, whole: ModelSource, gpu: str = "h100-80g") -> Trace:
    return trace_for(spec, load_profile(gpu), load=lambda: whole)


@pytest.fixture
def fold_of(monkeypatch: pytest.MonkeyPatch) -> Fold:
    """Fold a source in place of the preset that the job names."""

    def fold(spec: JobSpec, whole: ModelSource, gpu: str = "h100-80g") -> Trace | Folded | None:
        monkeypatch.setattr("memplan.job.load.load_source", lambda _: whole)
        return folded_trace(spec, lambda shallow: traced(spec, shallow, gpu))

    return fold


def bare(trace: Trace) -> Trace:
    return replace(trace, graph=None, constants={}, trace_seconds=0.0, folded=None)


@pytest.mark.parametrize(
    ("gpu", "changes"),
    [
        ("h100-80g", {}),
        ("cpu", {}),
        pytest.param(
            "h100-80g", {"grad_accum": 2, "precision": "bf16-mixed", "optimizer_impl": "fused"}, marks=pytest.mark.slow
        ),
        ("h100-80g", {"checkpoint": "full", "optimizer": "sgd-momentum"}),
        pytest.param("h100-80g", {"optimizer_in_backward": True}, marks=pytest.mark.slow),
        ("h100-80g", {"mode": "inference"}),
        ("h100-80g", {"clip_grad_norm": 1.0}),
        # Ranks add up the norms of their shards: what is made of the stack of norms grows with it.
        ("h100-80g", {"clip_grad_norm": 1.0, "parallel": parse_parallel("fsdp=4")}),
    ],
)
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_a_folded_trace_is_the_whole_one(fold_of: Fold, gpu: str, changes: dict[str, object]) -> None:
    spec = replace(SPEC, **changes)  # type: ignore[arg-type]
    trace = fold_of(spec, source(), gpu)
    assert isinstance(trace, Trace)
    assert bare(trace) == bare(traced(spec, source(), gpu))
    assert trace.folded is not None
    assert not trace.folded.refused
    assert max(trace.folded.traced) < BLOCKS / 2


def test_blocks_that_differ_beyond_the_shallow_ones_are_seen(fold_of: Fold) -> None:
    found = fold_of(SPEC, source(odd=frozenset({BLOCKS - 2})))
    assert isinstance(found, Folded)
    assert found.traced == ()
    assert found.refused == "its blocks are not alike"


@pytest.mark.slow
def test_kinds_that_alternate_are_folded_by_their_period(fold_of: Fold) -> None:
    whole = source(46, frozenset(range(1, 46, 2)), period=2)
    trace = fold_of(SPEC, whole)
    assert isinstance(trace, Trace)
    assert bare(trace) == bare(traced(SPEC, whole))


def test_norms_that_clipping_stacks_are_not_folded_beyond_one_kernel(
    fold_of: Fold, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(SPEC, clip_grad_norm=1.0)
    norms = 4 * (6 * BLOCKS + 3)
    monkeypatch.setattr("memplan.tracing.fold.traces.MOST_STACKED", norms)
    assert isinstance(fold_of(spec, source()), Trace)
    monkeypatch.setattr("memplan.tracing.fold.traces.MOST_STACKED", norms - 1)
    found = fold_of(spec, source())
    assert isinstance(found, Folded)
    assert found.refused


def test_what_imports_say_once_is_no_difference_between_depths(fold_of: Fold) -> None:
    whole = source()
    first, *later = [traced(SPEC, source(blocks)) for blocks in (2, 4, 5)]
    told = replace(first, assumptions=("said once", *first.assumptions))
    trace = continued([told, *later], BLOCKS - 2)
    assert trace is not None
    assert trace.assumptions == ("said once", *traced(SPEC, whole).assumptions)
    # Where the first of all traces is none of these, what it alone said is said all the same; what it counted is not.
    other = replace(first, assumptions=("said once", "1 block"))
    again = continued([first, *later], BLOCKS - 2, told=other)
    assert again is not None
    assert again.assumptions == trace.assumptions
    counted = [
        replace(each, assumptions=(*each.assumptions, f"{blocks} blocks"))
        for blocks, each in zip((2, 4, 5), (first, *later), strict=True)
    ]
    deep = continued(counted, BLOCKS - 2)
    assert deep is not None
    assert deep.assumptions[-1] == f"{BLOCKS} blocks"
    # Both at once, as LoRA in the first trace of a process.
    first, *later = counted
    both = continued([replace(first, assumptions=("said once", *first.assumptions)), *later], BLOCKS - 2)
    assert both is not None
    assert both.assumptions == ("said once", *deep.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"lora": Lora(), "precision": "bf16"}, {"grad_accum": 2}])
def test_the_loop_of_a_trainer_is_folded(changes: dict[str, object]) -> None:
    spec = JobSpec(target=PresetTarget(name="smollm2-135m"), loop="trainer", seq_len=32, **changes)  # type: ignore[arg-type]
    profile = load_profile("h100-80g")
    trace_for(spec, profile)
    trace = folded_trace(spec, lambda shallow: trace_for(spec, profile, load=lambda: shallow))
    assert isinstance(trace, Trace)
    assert bare(trace) == bare(trace_for(spec, profile))


@pytest.mark.parametrize(
    "changes", [{"no_fold": True}, {"checkpoint": "plan.json"}, {"compile": "inductor"}, {"mode": "generate"}]
)
def test_what_cannot_be_folded_is_not_tried(fold_of: Fold, changes: dict[str, object]) -> None:
    assert fold_of(replace(SPEC, **changes), source()) is None  # type: ignore[arg-type]


def test_folding_must_pay() -> None:
    def depth(blocks: int, period: int = 1) -> Depth:
        return Depth(blocks=blocks, period=period, at=source)

    assert list(depths_to_trace(depth(15), prefetched=False)) == []
    assert list(depths_to_trace(depth(16), prefetched=False)) == [(1, 3, 4)]
    assert list(depths_to_trace(depth(16), prefetched=True)) == []
    assert list(depths_to_trace(depth(32), prefetched=False)) == [(1, 3, 4), (2, 4, 5)]
    assert list(depths_to_trace(depth(32), prefetched=True)) == [(2, 4, 5)]
    assert list(depths_to_trace(depth(46, 2), prefetched=True)) == [(2, 6, 8)]
    assert all(
        (blocks - each) % period == 0
        for period in (1, 2, 3)
        for blocks in range(16, 130)
        for depths in depths_to_trace(depth(blocks, period), prefetched=False)
        for each in depths
    )
