"""A batch size that was foretold: a number, or what ``memplan batch -f json`` wrote. Torch-free."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError

_HOW = "make one with `memplan batch TARGET --gpu NAME -f json=FILE`"


def predicted_size(prediction: int | str | Path | Mapping[str, Any], *, gpu: str | None = None) -> int:
    """The batch size that a prediction names; at least 1.

    Args:
        prediction: The number, a file, or a file's content.
        gpu: Name of the profile, where there are several.

    Raises:
        UsageError: It cannot be read, is of something else, or has several GPUs and none is named.
    """
    if isinstance(prediction, int):
        return max(1, prediction)
    where = "prediction" if isinstance(prediction, Mapping) else str(prediction)
    content = prediction if isinstance(prediction, Mapping) else _read(Path(prediction))
    result = _of_gpu(_results(content, where), gpu, where)
    value = result.get("value")
    if result.get("variable") != "batch_size" or not isinstance(value, int):
        raise UsageError("the prediction is not of a batch size", where=where, hint=_HOW)
    return max(1, value)


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the prediction cannot be read: {error}", where=str(path), hint=_HOW) from error


def _results(content: Any, where: str) -> Sequence[Mapping[str, Any]]:
    results = content.get("results") if isinstance(content, Mapping) and content.get("command") == "batch" else None
    if not isinstance(results, Sequence) or not results or not all(isinstance(each, Mapping) for each in results):
        raise UsageError("this is no report of `memplan batch`", where=where, hint=_HOW)
    return results


def _of_gpu(results: Sequence[Mapping[str, Any]], gpu: str | None, where: str) -> Mapping[str, Any]:
    named = {str((each.get("gpu") or {}).get("name")): each for each in results}
    if gpu is None and len(named) == 1:
        return results[0]
    if gpu not in named:
        what = f"the prediction has no GPU '{gpu}'" if gpu else "the prediction is of several GPUs"
        raise UsageError(what, where=where, hint=f"gpu= one of {', '.join(sorted(named))}")
    return named[gpu]
