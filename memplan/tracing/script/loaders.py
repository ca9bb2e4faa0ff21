"""Data loaders run for real: what they hand over are tensors with data, on the host, as in a real run."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from memplan.seam.fake import DataDependentOutputException, DynamicOutputShapeException, FakeTensor, detect_fake_mode
from memplan.seam.modes import TorchDispatchMode, disable_current_modes
from memplan.seam.patches.world import LOADER_FETCH
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.nested import tensors_in
from memplan.tracing.recorder import Recorder
from memplan.tracing.refs import is_borrowed, storage_of
from memplan.tracing.script.epoch import Epoch
from memplan.units import StorageId

NO_VALUES = "a data set is made of tensors without values, and its loader asks for some: they are assumed"
ONES = "tensors without values that a data loader's sampler draws by hold ones"
_ITER = "torch.utils.data.DataLoader.__iter__"


@contextmanager
def real_loaders(recorder: Recorder, epoch: Epoch) -> Iterator[None]:
    """Let loaders fetch, transform and collate outside of the fake world.

    Args:
        recorder: Its ledger takes what they allocate, where the host's memory is the device's.
        epoch: Told of every batch.
    """
    fetch, begin = attribute(LOADER_FETCH), attribute(_ITER)

    without_values: WeakSet[Any] = WeakSet()
    begun_by: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def real_fetch(loader: Any) -> Any:
        epoch.fetch(loader)
        if loader in without_values:
            return fetch(loader)
        try:
            with disable_current_modes(), _counted(recorder):
                batch = fetch(loader)
        except (DataDependentOutputException, DynamicOutputShapeException):
            recorder.values.assume(NO_VALUES)
            without_values.add(loader)
            # An exception ends a generator, be it a sampler's or that of a data set.
            if loader in begun_by:
                vars(loader).update(vars(begin(begun_by[loader])))
            return fetch(loader)
        _name_inputs(recorder, batch)
        return batch

    def real_begin(loader: Any) -> Any:
        for sampler in (loader.sampler, loader.batch_sampler):
            _give_values(recorder, sampler)
        with disable_current_modes(), _counted(recorder):
            iterator = begin(loader)
        begun_by[iterator] = loader
        return iterator

    with replaced((Replacement(LOADER_FETCH, real_fetch), Replacement(_ITER, real_begin))):
        yield


def _give_values(recorder: Recorder, sampler: Any) -> None:
    """Let a sampler draw by tensors with values: read one by one, draws of the fake world take seconds a thousand."""
    for name, tensor in list(getattr(sampler, "__dict__", {}).items()):
        if isinstance(tensor, FakeTensor):
            known = recorder.values.value_of(tensor)
            with disable_current_modes():
                values = torch.ones(tensor.shape, dtype=tensor.dtype) if known is None else known.clone()
            # The fake one's memory is what counts, for as long as the sampler is there.
            values._memplan_twin = tensor  # type: ignore[attr-defined]
            setattr(sampler, name, values)
            if known is None:
                recorder.values.assume(ONES)


def _counted(recorder: Recorder) -> AbstractContextManager[object]:
    return _RealOps(recorder) if recorder.device.kind == "cpu" else nullcontext()


class _RealOps(TorchDispatchMode):
    """Runs ops for real and enters what they allocate."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = recorder.ledger

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one op."""
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            storage = storage_of(tensor)
            if storage is not None and self._ledger.find(storage) is None:
                self._ledger.allocate(storage, place="device", borrowed=is_borrowed(tensor))
        return result


def _name_inputs(recorder: Recorder, batch: Any) -> None:
    """A batch that was counted is the step's input, and no constant that its graph keeps."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for item in batch:
            _name_inputs(recorder, item)
    if isinstance(batch, torch.Tensor):
        storage = storage_of(batch)
        identity = None if storage is None else recorder.ledger.find(storage)
        if identity is not None:
            recorder.references.adopt(batch, role="input", name="batch", moves=False)
            _join_twin(recorder, batch, identity)


def _join_twin(recorder: Recorder, batch: torch.Tensor, identity: StorageId) -> None:
    """Views of a real tensor show the storage of the fake one that the fake world takes for it: they are one."""
    mode = detect_fake_mode()
    if mode is None or isinstance(batch, FakeTensor):
        return
    with recorder.muted():
        twin = mode.from_tensor(batch)
    storage = storage_of(twin)
    if storage is not None and recorder.ledger.find(storage) is None:
        recorder.ledger.join(storage, identity)
    # The fake world remembers it weakly, and would take another one for the next op.
    batch._memplan_twin = twin  # type: ignore[attr-defined]
