"""Peaks in published CUDA memory snapshots, whose programs ``cuda_streams`` holds, run from the start of their process.

Two repositories of a university course (CS336) hold them. The table's *allocated* is the peak of requested bytes in the
recorded window, so it is held against ``requested``; *reserved* is that of the segments, which what ran before decides
too. The five warm-up steps of ``medium_lm``'s runs are therefore all run.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from cuda_streams import large_lm, medium_lm
from cuda_streams.programs import AMPERE, HOPPER, Program, as_of, large_mixed_forward, large_training, recording

from memplan.replay.allocator import make_allocator
from memplan.replay.policy import AllocatorPolicy
from memplan.tracing.place import place_batch, place_model
from memplan.tracing.recorder import Recorder
from published.case import Case, Excluded, Prediction
from published.table import Row, figure, read_table

if TYPE_CHECKING:
    from memplan.replay.blocks import Block
    from memplan.units import StorageId

BEGINNING = "snap-"
UNKNOWN_PROGRAM = "an earlier state of the author's model, which no repository holds"
NO_SUCH_RUN = "no program is known for it"
RECONSTRUCTED = "the model was reconstructed from the snapshot's own frames"
AUTOCAST = "under bfloat16 autocast, which the number of recorded allocations says and the file's name does not"
SOME_GPU = "the GPU, which is not stated, has cuBLAS workspaces of 8,519,680 bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A program and what had to be assumed of it."""

    program: Program
    workload: str
    assumptions: tuple[str, ...]


def medium_training(recorder: Recorder, context: int, *, autocast: bool = False) -> Iterator[None]:
    """``memory_profile`` of nsys_profile.py at 882ca8d, whole steps."""
    model = medium_lm.LanguageModel(context)
    place_model(recorder, model)
    optimizer = medium_lm.AdamW(model.parameters())
    shape = (medium_lm.BATCH, context)
    warm_up = torch.zeros(medium_lm.WARM_UP_STEPS, *shape, dtype=torch.long)
    measured = torch.zeros(1, *shape, dtype=torch.long)
    warm_up_targets, measured_targets = torch.zeros_like(warm_up), torch.zeros_like(measured)
    place_batch(recorder, [warm_up, measured, warm_up_targets, measured_targets])
    recorder.recording = True

    def forward(tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            output = model(tokens)
            return output, medium_lm.cross_entropy(output, targets)

    for step in range(medium_lm.WARM_UP_STEPS):
        output, loss = forward(warm_up[step], warm_up_targets[step])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    del output, loss
    yield
    # The name keeps the logits alive through the backward pass.
    output, loss = forward(measured[0], measured_targets[0])
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    yield
    del output


def medium_inference(recorder: Recorder, context: int, *, autocast: bool = False) -> Iterator[None]:
    """``memory_profile`` of nsys_profile.py at 882ca8d, forward passes."""
    model = medium_lm.LanguageModel(context).eval()
    place_model(recorder, model)
    shape = (medium_lm.BATCH, context)
    warm_up = torch.zeros(medium_lm.WARM_UP_STEPS, *shape, dtype=torch.long)
    measured = torch.zeros(1, *shape, dtype=torch.long)
    place_batch(recorder, [warm_up, measured])
    recorder.recording = True
    with torch.inference_mode():
        for step in range(medium_lm.WARM_UP_STEPS):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
                model(warm_up[step])
        yield
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            model(measured[0])
        yield


def large_forward(recorder: Recorder, context: int) -> Iterator[None]:
    """The first forward pass of a process, with gradients, in float32."""
    model = large_lm.LanguageModel(context)
    place_model(recorder, model)
    batch = torch.zeros(large_lm.BATCH, context, dtype=torch.long)
    place_batch(recorder, batch)
    recorder.recording = True
    yield
    logits = model(batch)
    yield
    del logits


def _medium(run: Callable[..., Iterator[None]], context: int, *, autocast: bool = False) -> Run:
    return Run(
        program=Program(
            device=AMPERE, release="2.11.0", run=functools.partial(run, context=context, autocast=autocast)
        ),
        workload="inference" if run is medium_inference else "full",
        assumptions=(SOME_GPU, AUTOCAST) if autocast else (SOME_GPU,),
    )


def _large(run: Callable[..., Iterator[None]]) -> Run:
    return Run(
        program=Program(device=HOPPER, release="2.6.0", run=functools.partial(run, context=128)),
        workload="full",
        assumptions=(RECONSTRUCTED, "building the model leaves no segments behind"),
    )


_FULL_STEP, _FORWARD = _large(large_training), _large(large_forward)
RUNS = {
    "wedsonlin_medium_128_training": _medium(medium_training, 128),
    "wedsonlin_medium_256_training": _medium(medium_training, 256),
    "wedsonlin_medium_512_training": _medium(medium_training, 512, autocast=True),
    "wedsonlin_medium_128_inference": _medium(medium_inference, 128),
    "wedsonlin_medium_256_inference": _medium(medium_inference, 256),
    "wedsonlin_medium_512_inference": _medium(medium_inference, 512, autocast=True),
    "kkaitlyn_memory_ctx128_forward": _FORWARD,
    "kkaitlyn_memory_ctx128_forward_": _FORWARD,
    "kkaitlyn_memory_ctx128_forward_mixed": _large(large_mixed_forward),
    "kkaitlyn_memory_ctx128_fullstep": _FULL_STEP,
    "kkaitlyn_memory_ctx128_fullstep_": _FULL_STEP,
}
"""Snapshot → its run."""
EXCLUDED = {"kkaitlyn_logs_memory_ctx128_forward": UNKNOWN_PROGRAM}
"""Snapshot → reason."""


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows of snapshots; none without the data."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in read_table():
        if not row["id"].startswith(BEGINNING):
            continue
        name = row["id"].removeprefix(BEGINNING).rpartition("-")[0]
        if name in RUNS:
            found.append(_case(row, RUNS[name]))
        else:
            reason = EXCLUDED.get(name, NO_SUCH_RUN)
            excluded.append(Excluded(id=row["id"], source=row["source"], reason=reason))
    return found, excluded


def _case(row: Row, run: Run) -> Case:
    measured, resolution = figure(row)
    return Case(
        id=row["id"],
        source=row["source"],
        workload=run.workload,
        metric="reserved" if row["metric"] == "reserved" else "requested",
        measured=measured,
        resolution=resolution,
        predict=functools.partial(predict, run),
        assumptions=run.assumptions,
    )


@functools.cache
def predict(run: Run) -> Prediction:
    """The peaks of what a program does between its two yields, all before it played as well."""
    program = run.program
    with as_of(program.release), recording(program.device) as recorder:
        steps = program.run(recorder)
        next(steps)
        first = len(recorder.ledger.events)
        next(steps)
        return window_peaks(recorder, first, len(recorder.ledger.events))


def window_peaks(recorder: Recorder, first: int, end: int) -> Prediction:
    """Highest figures of a fresh allocator while it plays events ``[first, end)``, after all those before them."""
    allocator = make_allocator(AllocatorPolicy())
    live: dict[StorageId, Block] = {}
    storages = recorder.ledger.storages()
    highest = [0, 0, 0]
    for position, event in enumerate(recorder.ledger.events[:end]):
        storage = storages[event.storage]
        if storage.place == "host" or not storage.nbytes:
            continue
        if event.action == "free":
            allocator.free(live.pop(event.storage))
        else:
            block = allocator.allocate(storage.nbytes, 0)
            assert block is not None, "without a limit every request is served"
            live[event.storage] = block
        if position >= first - 1:
            figures = allocator.requested, allocator.allocated, allocator.reserved
            highest = [max(pair) for pair in zip(highest, figures, strict=True)]
    return Prediction(requested=highest[0], allocated=highest[1], reserved=highest[2])
