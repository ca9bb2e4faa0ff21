"""How a job is spread over ranks: ``--parallel fsdp=8,tp=2``, read and written here alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from memplan.errors import UsageError

DataParallel = Literal["none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"]
Schedule = Literal["gpipe", "1f1b", "interleaved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees of parallelism, 1 for none.

    Ranks are counted with tensor innermost, then context, shards, replicas, and pipeline outermost, as torchtitan does.
    """

    data: DataParallel = "none"
    """What keeps the data-parallel ranks together."""
    replicas: int = 1
    """Copies of the whole state: ranks of DDP, or of HSDP's outer dimension."""
    shards: int = 1
    """Ranks that share one copy of the state: FSDP, ZeRO."""
    tensor: int = 1
    """Ranks that share every layer (with sequence parallelism in between)."""
    context: int = 1
    """Ranks that share every sequence."""
    pipeline: int = 1
    """Stages."""
    expert: int = 1
    """Ranks that share the experts; among the data-parallel and context-parallel ranks, not times them."""
    reshard: bool | int = True
    """FSDP2's ``reshard_after_forward``: free gathered parameters after forward; a number shards them over so many."""
    offload: bool = False
    """FSDP or ZeRO keeps parameters, gradients and optimizer states in host memory (ZeRO 1 and 2: not parameters)."""
    schedule: Schedule = "1f1b"
    """Of the pipeline."""
    micro_batches: int | None = None
    """Of the pipeline, per step; None: twice the stages."""

    @property
    def data_ranks(self) -> int:
        """Ranks that get batches of their own."""
        return self.replicas * self.shards

    @property
    def ranks(self) -> int:
        """All ranks: the world size."""
        return self.data_ranks * self.tensor * self.context * self.pipeline

    @property
    def step_batches(self) -> int:
        """Micro-batches that a pipeline takes through one step; 1 without a pipeline."""
        return 1 if self.pipeline == 1 else self.micro_batches or 2 * self.pipeline

    def __str__(self) -> str:
        """As it is typed; ``none`` for one rank alone."""
        return format_parallel(self)


ALONE = Parallel()
"""One rank."""

_DATA: Mapping[str, DataParallel] = {
    "ddp": "ddp", "fsdp": "fsdp2", "fsdp1": "fsdp1", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3"
}  # fmt: skip
_DEGREES = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert"}
_SWITCHES = {"yes": True, "no": False}
_FORM = "write for example fsdp=8,tp=2, hsdp=4x8, ddp=8, zero3=8 or fsdp=8,reshard=no"


def parse_parallel(text: str) -> Parallel:
    """Read ``--parallel``.

    Args:
        text: ``none``, or ``KEY=VALUE`` joined by commas. Degrees: ``ddp``, ``fsdp``, ``fsdp1``, ``zero1`` (to 3),
            ``hsdp=REPLICASxSHARDS``, ``tp``, ``cp``, ``pp``, ``ep``. Options: ``reshard=yes|no|N``, ``offload=yes|no``,
            ``schedule=gpipe|1f1b|interleaved``, ``micro=N``.

    Raises:
        UsageError: The text says something else, or the same thing twice.
    """
    parallel, seen = ALONE, set[str]()
    for item in () if text.strip() == "none" else text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        reader = _READERS.get(key)
        if reader is None or not value:
            raise UsageError(f"--parallel does not know '{item.strip()}'", hint=_FORM)
        changes = reader(key, value)
        if seen & changes.keys():
            raise UsageError(f"--parallel says more than once what '{item.strip()}' says", hint=_FORM)
        seen |= changes.keys()
        parallel = replace(parallel, **changes)
    return parallel


def format_parallel(parallel: Parallel) -> str:
    """Write what ``parse_parallel`` reads: only what differs from a single rank."""
    names = {name: key for key, name in _DATA.items()}
    parts = []
    if parallel.data == "fsdp2" and parallel.replicas > 1:
        parts.append(f"hsdp={parallel.replicas}x{parallel.shards}")
    elif parallel.data != "none":
        parts.append(f"{names[parallel.data]}={parallel.data_ranks}")
    parts += [f"{key}={degree}" for key, name in _DEGREES.items() if (degree := getattr(parallel, name)) > 1]
    if parallel.reshard is not True:
        parts.append(f"reshard={parallel.reshard or 'no'}")
    parts += ["offload=yes"] if parallel.offload else []
    parts += [f"schedule={parallel.schedule}"] if parallel.schedule != ALONE.schedule else []
    parts += [f"micro={parallel.micro_batches}"] if parallel.micro_batches else []
    return ",".join(parts) or "none"


def _count(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--parallel {key} must be a whole number above 0, not '{value}'", hint=_FORM)
    return int(value)


def _data(key: str, value: str) -> dict[str, Any]:
    whole = key == "ddp"
    count = _count(key, value)
    return {"data": _DATA[key], "replicas": count if whole else 1, "shards": 1 if whole else count}


def _hybrid(key: str, value: str) -> dict[str, Any]:
    replicas, _, shards = value.partition("x")
    return {"data": "fsdp2", "replicas": _count(key, replicas), "shards": _count(key, shards)}


def _reshard(key: str, value: str) -> dict[str, Any]:
    return {"reshard": _SWITCHES[value] if value in _SWITCHES else _count(key, value)}


def _word(words: Mapping[str, Any], field: str) -> Callable[[str, str], dict[str, Any]]:
    def read(key: str, value: str) -> dict[str, Any]:
        if value not in words:
            raise UsageError(f"--parallel {key} must be one of {', '.join(words)}, not '{value}'", hint=_FORM)
        return {field: words[value]}

    return read


_READERS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    **dict.fromkeys(_DATA, _data),
    "hsdp": _hybrid,
    **{key: lambda key, value: {_DEGREES[key]: _count(key, value)} for key in _DEGREES},
    "reshard": _reshard,
    "offload": _word(_SWITCHES, "offload"),
    "schedule": _word({name: name for name in get_args(Schedule)}, "schedule"),
    "micro": lambda key, value: {"micro_batches": _count(key, value)},
}
"""Key → what it says of the record."""
