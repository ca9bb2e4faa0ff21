"""Where a job's loop runs: what it means there to place a model and its batches.

The loop itself (``prepare``, ``loop``) is the same whether its steps are traced on fake tensors or run for real
(``memplan.validate``); what differs stands behind this interface.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.runtime.checkpoint.blocks import bare
from memplan.tracing.caches import cache_layers
from memplan.tracing.place import batch_tensors, map_batch, place_batch, place_model
from memplan.tracing.recorder import Recorder
from memplan.tracing.refs import nbytes_of
from memplan.tracing.run_few import run_few
from memplan.tracing.steppers import Steppers
from memplan.tracing.turns import micro_batches_that_run
from memplan.tracing.world import moves_itself
from memplan.units import Bytes

if TYPE_CHECKING:
    from memplan.tracing.records import CacheLayer


class Surroundings(Protocol):
    """What a loop asks of the place that it runs in."""

    @property
    def kind(self) -> Literal["cuda", "cpu"]:
        """The device type that autocast and gradient scaling are meant for."""

    def place_model(self, model: torch.nn.Module) -> None:
        """Put a model on the device."""

    def place_batch(self, make: Callable[[], Any]) -> Any:
        """Make a batch as a data loader does, on the host and outside the recorded step, and put it on the device."""

    def micro_batches(self, spec: JobSpec) -> Iterable[int]:
        """Yield the number of each micro-batch of a step that is to run."""

    def loaded(self, batch: Any) -> None:
        """Note a batch as the data loader hands it over."""

    def called(self, items: Mapping[str, str], held_back: tuple[str, ...]) -> None:
        """Note which parameter of ``forward`` gets which item of the batch, and which gets none because of the loss."""

    def given(self, optimizer: torch.optim.Optimizer) -> None:
        """Note an optimizer that memplan made."""

    def cached(self, output: Any) -> None:
        """Note what a model that generates caches, from the output of a forward."""

    def keep(self, name: str, make: Callable[[], torch.Tensor], *, on_host: bool) -> None:
        """Make a tensor that lives as long as the job, on the host or on the device."""

    def recomputing(self, module: torch.nn.Module) -> AbstractContextManager[Any]:
        """The context in which a checkpointed module runs again in backward."""

    def assume(self, sentence: str) -> None:
        """Note what was taken for granted."""


class Recorded:
    """Fake tensors under a recorder: to place something is to tell the recorder of it."""

    def __init__(self, recorder: Recorder) -> None:
        self.batch: tuple[Bytes, ...] = ()
        """Sizes of the tensors of the last batch that a loader would have handed over."""
        self.arguments: Mapping[str, str] = {}
        """Parameter of ``forward`` → item of the batch, where the batch is a tuple or list."""
        self.cache: tuple[CacheLayer, ...] = ()
        """Layers of the last cache of keys and values."""
        self.steppers = Steppers()
        """Optimizers that step."""
        self._recorder = recorder
        self._kept: list[torch.Tensor] = []

    @property
    def kind(self) -> Literal["cuda", "cpu"]:
        """The device that the step is traced for."""
        return self._recorder.device.kind

    def place_model(self, model: torch.nn.Module) -> None:
        """Enter parameters and buffers as allocations on the device, under their names inside of DDP."""
        model = bare(model)
        self._recorder.attribution.name_modules(model)
        if self.kind == "cuda" and _moves_more(model):
            with user_code("the model's own to()"):
                model.to("cuda")
        place_model(self._recorder, model)

    def place_batch(self, make: Callable[[], Any]) -> Any:
        """Make a batch unrecorded, and enter its tensors as allocations on the device."""
        self._recorder.attribution.begin_forward()
        recording, self._recorder.recording = self._recorder.recording, False
        batch = make()
        if self.kind == "cuda":
            batch = map_batch(batch, _own_storage())
        self._recorder.recording = recording
        place_batch(self._recorder, batch)
        return batch

    def micro_batches(self, spec: JobSpec) -> Iterator[int]:
        """Yield the numbers of those that the job lets run; the recorder is told what stands for the others."""
        leading, last = micro_batches_that_run(spec)
        return run_few(self._recorder, spec.grad_accum, leading, last)

    def loaded(self, batch: Any) -> None:
        """Note the sizes of its tensors."""
        self.batch = tuple(Bytes(nbytes_of(tensor)) for _, tensor in batch_tensors(batch))

    def called(self, items: Mapping[str, str], held_back: tuple[str, ...]) -> None:
        """Note what goes where, and say what does not."""
        self.arguments = items
        if held_back:
            self.assume(f"forward() gets no {' and no '.join(held_back)}: the loss reads that item of the batch")

    def given(self, optimizer: torch.optim.Optimizer) -> None:
        """It has the name that the options have for it."""
        self.steppers.give(optimizer)

    def cached(self, output: Any) -> None:
        """Note the shapes of its cache."""
        self.cache = cache_layers(output)

    def keep(self, name: str, make: Callable[[], torch.Tensor], *, on_host: bool) -> None:
        """Keep a tensor where it was made, which outside of the step is the host, or enter it on the device."""
        tensor = make()
        if not on_host:
            self._recorder.references.adopt(tensor, role="buffer", name=name)
        self._kept.append(tensor)

    def recomputing(self, module: torch.nn.Module) -> AbstractContextManager[Any]:
        """Attribute what runs again to the module."""
        return self._recorder.attribution.within(module)

    def assume(self, sentence: str) -> None:
        """Note a sentence for the report."""
        self._recorder.values.assume(sentence)


def _moves_more(model: torch.nn.Module) -> bool:
    """Does a real program's ``model.to(device)`` move tensors that are neither parameters nor buffers?"""
    return moves_itself(model, "to") or any(moves_itself(module, "_apply") for module in model.modules())


def _own_storage() -> Callable[[torch.Tensor], torch.Tensor]:
    """Gives every tensor of a batch a storage of its own size, as moving it to another device does.

    One that stands in the batch twice is moved once; a view takes along no more than it shows.
    """
    own: dict[int, torch.Tensor] = {}
    taken: set[int] = set()

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in own or tensor.layout is not torch.strided:
            return own.get(id(tensor), tensor)
        storage = tensor.untyped_storage()
        fits = storage.nbytes() == tensor.nbytes and storage._cdata not in taken
        taken.add(storage._cdata)
        own[id(tensor)] = tensor if fits else tensor.clone()
        return own[id(tensor)]

    return moved
