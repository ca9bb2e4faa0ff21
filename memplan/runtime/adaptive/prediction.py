"""A batch size that was foretold: a number, or what ``memplan batch -f json`` wrote. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.contract.document import Document
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.monitor.plan import of_gpu

_HOW = "make one with `memplan batch TARGET --gpu NAME -f json=FILE`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedBatch:
    """What is read of a prediction for one GPU."""

    variable: str
    """What was enlarged."""
    value: int
    """The answer."""


BATCH = Document(name="batch", root=PredictedBatch, strict=True, called="the prediction", hint=_HOW)
"""What is read of a prediction."""


def predicted_size(prediction: int | str | Path | Mapping[str, Any], *, gpu: str | None = None) -> int:
    """Return the batch size, at least 1, that a prediction names: the number, a file, or a file's content.

    Raises:
        UsageError: It cannot be read, is of something else, or has several GPUs and none is named.
    """
    if isinstance(prediction, int):
        return max(1, prediction)
    where = "prediction" if isinstance(prediction, Mapping) else str(prediction)
    content = prediction if isinstance(prediction, Mapping) else _read(Path(prediction))
    results = content.get("results") if isinstance(content, Mapping) and content.get("command") == "batch" else None
    if not isinstance(results, list) or not results:
        raise UsageError("this is no report of `memplan batch`", where=where, hint=_HOW)
    batch: PredictedBatch = BATCH.read(of_gpu(results, gpu, where, called="prediction"), where)
    if batch.variable != "batch_size":
        raise UsageError("the prediction is not of a batch size", where=where, hint=_HOW)
    return max(1, batch.value)


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the prediction cannot be read: {error}", where=str(path), hint=_HOW) from error
