"""Predict the allocation streams of published CUDA snapshots and compare them event for event.

    python benchmarks/cuda_streams.py [FOLDER]

FOLDER holds the snapshots (default: ``$MEMPLAN_DATA/snapshots``). For each known program it prints how many of the real
events the predicted stream holds in the same order with the same size, and the error of the peak in requested bytes.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import SequenceMatcher
from pathlib import Path

import torch
from cuda_streams import medium_lm
from cuda_streams.snapshot import Step, Stream, stream_of

from memplan.trace.place import place_batch, place_model
from memplan.trace.recorder import Recorder
from memplan.trace.records import DeviceTraits
from memplan.trace.scratch.cuda_table import CUDA_RULES
from memplan.trace.values import Values
from memplan.trace.world import fake_world

AMPERE = DeviceTraits(kind="cuda", capability=(8, 0), sm_count=108, threads_per_sm=2048)


def medium_training(recorder: Recorder, context: int) -> Iterator[None]:
    model = medium_lm.LanguageModel(context)
    place_model(recorder, model)
    optimizer = medium_lm.AdamW(model.parameters())
    sizes = {"warm_up": medium_lm.WARM_UP_STEPS, "measured": 1}
    shape = (medium_lm.BATCH, context)
    batches = {
        name: (torch.zeros(count, *shape, dtype=torch.long), torch.zeros(count, *shape, dtype=torch.long))
        for name, count in sizes.items()
    }
    place_batch(recorder, batches)
    model.train()
    recorder.recording = True
    inputs, targets = batches["warm_up"]
    for index in range(medium_lm.WARM_UP_STEPS):
        output = model(inputs[index])
        loss = medium_lm.cross_entropy(output, targets[index])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del output, loss
    inputs, targets = batches["measured"]
    yield
    output = model(inputs[0])
    loss = medium_lm.cross_entropy(output, targets[0])
    loss.backward()
    optimizer.step()
    yield


PROGRAMS: dict[str, tuple[DeviceTraits, Callable[[Recorder], Iterator[None]]]] = {
    "wedsonlin_medium_256_training_memory_snapshot.pickle": (AMPERE, lambda recorder: medium_training(recorder, 256)),
}


@contextmanager
def recording(device: DeviceTraits) -> Iterator[Recorder]:
    """A recorder with CUDA's kernel scratch, in a fake world."""
    with ExitStack() as stack:
        stack.enter_context(fake_world())
        recorder = Recorder(device, CUDA_RULES, None, Values(worst_case=False))
        stack.enter_context(recorder.attribution.watching())
        yield stack.enter_context(recorder)


def predict(device: DeviceTraits, program: Callable[[Recorder], Iterator[None]]) -> Stream:
    """The stream of what a program does after its first yield."""
    with recording(device) as recorder:
        steps = program(recorder)
        next(steps)
        first = len(recorder.ledger.events)
        next(steps)
        events, storages = tuple(recorder.ledger.events), recorder.ledger.storages()
    sized = [(event.action, storages[event.storage].nbytes) for event in events if storages[event.storage].place == "device"]
    before = sum(storages[event.storage].place == "device" for event in events[:first])
    base = sum(size if action == "alloc" else -size for action, size in sized[:before])
    return Stream(steps=tuple((action, int(size)) for action, size in sized[before:] if size), base_bytes=int(base))


def in_common(real: tuple[Step, ...], predicted: tuple[Step, ...]) -> int:
    """Events of the longest common subsequence (as difflib finds it)."""
    shorter = min(len(real), len(predicted))
    same = next((i for i in range(shorter) if real[i] != predicted[i]), shorter)
    if same == len(real) == len(predicted):
        return same
    matcher = SequenceMatcher(None, real[same:], predicted[same:], autojunk=False)
    return same + sum(block.size for block in matcher.get_matching_blocks())


def main(folder: Path) -> None:
    for name, (device, program) in PROGRAMS.items():
        path = folder / name
        if not path.exists():
            continue
        real = stream_of(path)
        started = time.perf_counter()
        predicted = predict(device, program)
        seconds = time.perf_counter() - started
        common = in_common(real.steps, predicted.steps)
        share = common / max(len(real.steps), len(predicted.steps))
        error = predicted.peak() - real.peak()
        print(
            f"{name}: {len(real.steps)} events, {100 * share:.2f} % in common, "
            f"base {predicted.base_bytes - real.base_bytes:+,} B, peak {real.peak():,} B, error {error:+,} B, {seconds:.1f} s"
        )


if __name__ == "__main__":
    data = Path(os.environ.get("MEMPLAN_DATA", Path(__file__).parents[2] / "shared" / "data"))
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else data / "snapshots")
