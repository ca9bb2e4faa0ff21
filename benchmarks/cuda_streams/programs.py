"""The known programs as generators: set-up up to the first yield, what the snapshot saw up to the second."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import torch

from cuda_streams import bert_large, counterfactuals, large_lm, medium_lm
from cuda_streams.snapshot import Stream
from memplan.tracing.cuda.release import VARIABLE
from memplan.tracing.place import place_batch, place_model
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.semantics import semantics
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from memplan.units import Bytes

AMPERE = DeviceTraits(kind="cuda", capability=(8, 0), sm_count=108, threads_per_sm=2048)
TURING = DeviceTraits(kind="cuda", capability=(7, 5), sm_count=72, threads_per_sm=1024)
HOPPER = DeviceTraits(
    kind="cuda", capability=(9, 0), sm_count=132, threads_per_sm=2048, cublas_workspace_bytes=Bytes(33_554_432)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program with the device and the release of torch that it ran on."""

    device: DeviceTraits
    release: str
    run: Callable[[Recorder], Iterator[None]]


def medium_training(recorder: Recorder, context: int) -> Iterator[None]:
    """One step after warm-up."""
    model = medium_lm.LanguageModel(context)
    place_model(recorder, model)
    optimizer = medium_lm.AdamW(model.parameters())
    shape = (medium_lm.BATCH, context)
    warm_up = [torch.zeros(medium_lm.WARM_UP_STEPS, *shape, dtype=torch.long) for _ in range(2)]
    measured = [torch.zeros(1, *shape, dtype=torch.long) for _ in range(2)]
    place_batch(recorder, [warm_up, measured])
    recorder.recording = True
    # The first of the warm-up steps leaves behind what all of them do.
    output = model(warm_up[0][0])
    loss = medium_lm.cross_entropy(output, warm_up[1][0])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del output, loss
    yield
    output = model(measured[0][0])
    loss = medium_lm.cross_entropy(output, measured[1][0])
    loss.backward()
    optimizer.step()
    yield


def medium_inference(recorder: Recorder, context: int) -> Iterator[None]:
    """One forward pass in inference mode after another."""
    model = medium_lm.LanguageModel(context).eval()
    place_model(recorder, model)
    shape = (medium_lm.BATCH, context)
    warm_up = torch.zeros(medium_lm.WARM_UP_STEPS, *shape, dtype=torch.long)
    measured = torch.zeros(1, *shape, dtype=torch.long)
    place_batch(recorder, [warm_up, measured])
    recorder.recording = True
    with torch.inference_mode():
        model(warm_up[0])
        yield
        model(measured[0])
        yield


def large_training(recorder: Recorder, context: int) -> Iterator[None]:
    """The first step of a process: it makes the optimizer's state and the cuBLAS workspaces."""
    model = large_lm.LanguageModel(context)
    place_model(recorder, model)
    optimizer = large_lm.AdamW(model.parameters())
    batch = torch.zeros(large_lm.BATCH, context, dtype=torch.long)
    place_batch(recorder, batch)
    recorder.recording = True
    yield
    optimizer.zero_grad()
    logits = model(batch)
    loss = large_lm.cross_entropy(logits, batch)
    loss.backward()
    optimizer.step()
    yield


def large_mixed_forward(recorder: Recorder, context: int) -> Iterator[None]:
    """The first forward pass of a process, with gradients, under bfloat16 autocast."""
    model = large_lm.LanguageModel(context)
    place_model(recorder, model)
    batch = torch.zeros(large_lm.BATCH, context, dtype=torch.long)
    place_batch(recorder, batch)
    recorder.recording = True
    with torch.autocast("cuda", dtype=torch.bfloat16):
        yield
        logits = model(batch)
        yield
        del logits


def image_search(recorder: Recorder) -> Iterator[None]:
    """All epochs; the last one is cut off where the snapshot was taken."""
    model = counterfactuals.LatentCNN().requires_grad_(requires_grad=False)
    place_model(recorder, model)
    image = torch.zeros(1, counterfactuals.SLICES, counterfactuals.SIDE, counterfactuals.SIDE)
    recorder.recording = True
    label = model(image.to("cuda"))
    yield
    epochs = counterfactuals.search(model, image, label)
    for _ in range(counterfactuals.EPOCHS):
        next(epochs)
    yield
    epochs.close()


def masked_words(recorder: Recorder) -> Iterator[None]:
    """Two batches, each copied from the host when it comes; the first one's logits are held until the second's come."""
    model = bert_large.Bert().eval()
    place_model(recorder, model)
    words = torch.zeros(bert_large.BATCH, bert_large.LENGTH, dtype=torch.long)
    masked = torch.zeros(bert_large.BATCH, bert_large.MASKED, dtype=torch.long)
    recorder.recording = True
    with torch.no_grad():
        yield
        for _ in range(2):
            tokens = words  # As the loader's loop does, which lets go of what was copied before.
            targets = masked
            tokens = tokens.to("cuda")
            targets = targets.to("cuda")
            output = model(tokens)
        yield
    del tokens, targets, output


PROGRAMS = {
    "wedsonlin_medium_256_training_memory_snapshot.pickle": Program(
        device=AMPERE, release="2.11.0", run=lambda recorder: medium_training(recorder, 256)
    ),
    "wedsonlin_medium_128_inference_memory_snapshot.pickle": Program(
        device=AMPERE, release="2.11.0", run=lambda recorder: medium_inference(recorder, 128)
    ),
    "kkaitlyn_memory_ctx128_fullstep.pickle": Program(
        device=HOPPER, release="2.6.0", run=lambda recorder: large_training(recorder, 128)
    ),
    "kkaitlyn_memory_ctx128_forward_mixed.pickle": Program(
        device=HOPPER, release="2.6.0", run=lambda recorder: large_mixed_forward(recorder, 128)
    ),
    "Maphsge4__select_n_5a601013.pickle": Program(device=HOPPER, release="2.1.0", run=masked_words),
    "JasperSolt__EoR_NN_snapshot.pickle": Program(device=TURING, release="2.3.0", run=image_search),
}
"""Snapshot file → program."""


@contextmanager
def as_of(release: str) -> Iterator[None]:
    """Kernels take what they take in a release of torch, whichever is at hand."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = release
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


@contextmanager
def recording(device: DeviceTraits) -> Iterator[Recorder]:
    """A recorder with CUDA's semantics in a fake world, put together as ``memplan.tracing.run`` does."""
    with ExitStack() as stack:
        stack.enter_context(fake_world())
        means = stack.enter_context(semantics(device, "auto"))
        recorder = Recorder(device, means.scratch_rules, means.place_rule, Values())
        means.ask_host(recorder.references.is_host)
        stack.enter_context(recorder.attribution.watching())
        stack.enter_context(recorder)
        recorder.references.default_place = "host"
        yield recorder


def predict(program: Program) -> Stream:
    """The stream of what a program does between its two yields.

    It ends before the recorder leaves: one that waits inside of ``torch.inference_mode()`` puts back, when it ends, the
    dispatcher's state from before, in which the recorder is looked for.
    """
    with as_of(program.release), recording(program.device) as recorder, closing(program.run(recorder)) as steps:
        next(steps)
        first = len(recorder.ledger.events)
        next(steps)
        events, storages = tuple(recorder.ledger.events), recorder.ledger.storages()
    base, taken = 0, []
    for position, event in enumerate(events):
        storage = storages[event.storage]
        if storage.place == "host" or not storage.nbytes:
            continue
        if position >= first:
            taken.append((event.action, int(storage.nbytes)))
        else:
            base += storage.nbytes if event.action == "alloc" else -storage.nbytes
    return Stream(steps=tuple(taken), base_bytes=base)
