"""Experiment trackers, and what shows things to people: whatever a program tells them goes nowhere."""

import dis
import importlib.machinery
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Self

NAMES = frozenset(
    {"wandb", "mlflow", "tensorboard", "tensorboardX", "tensorboard_logger", "torch.utils.tensorboard", "comet_ml",
     "neptune", "clearml", "aim", "swanlab", "trackio", "mlperf_logger", "mlperf_logging"}
)  # fmt: skip
"""Modules that stand-ins take the place of, installed or not."""

_SHOWING = frozenset(
    {"altair", "bokeh", "matplotlib", "plotly", "prettytable", "pylab", "seaborn", "tabulate", "tqdm", "visdom"}
)
"""Packages whose place stand-ins take where they are not installed: what they are given, they show."""


class Nothing:
    """Takes every call and has every attribute; it keeps no argument, so that no tensor lives on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __setattr__(self, name: str, value: object) -> None:
        """Forget it."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Forget the arguments."""
        return Nothing()

    def __getitem__(self, _: object) -> Any:
        return Nothing()

    def __setitem__(self, _: object, __: object) -> None:
        """Forget it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def __iter__(self) -> Iterator[Any]:
        # Who takes it apart gets as many parts as it wants; a loop has no round.
        frame = sys._getframe(1)
        code, at = frame.f_code.co_code, frame.f_lasti
        wanted = code[at + 1] if dis.opname[code[at]] == "UNPACK_SEQUENCE" else 0
        return iter([Nothing() for _ in range(wanted)])

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return "nothing"

    def __fspath__(self) -> str:
        return "nothing"


class _Progress(Nothing):
    """A bar that shows nothing of what goes on below it (``tqdm``)."""

    def __init__(self, below: Any = (), *_: Any, **given: Any) -> None:
        self.__dict__["_below"] = given.get("iterable", below)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__["_below"])

    def __len__(self) -> int:
        return len(self.__dict__["_below"])


def _progress_range(*bounds: int, **_: Any) -> _Progress:
    return _Progress(range(*bounds))


_BARS = {"tqdm": _Progress, "tqdm_notebook": _Progress, "trange": _progress_range, "tnrange": _progress_range}


class Inert(ModuleType):
    """A module whose every name is ``Nothing``, or a bar that says how far something is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _BARS.get(name) or Nothing()


class Loader:
    """Makes inert modules (``importlib.abc.Loader``)."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An inert module, which may have others below it."""
        return Inert(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is to be run."""


def spec_of(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where an import finds a stand-in; None for everything else."""
    if not any(name == known or name.startswith(f"{known}.") for known in NAMES):
        return None
    return inert(name)


def showing(name: str) -> importlib.machinery.ModuleSpec | None:
    """A stand-in of what only shows things; None for everything else."""
    return inert(name) if name.partition(".")[0] in _SHOWING else None


def inert(name: str) -> importlib.machinery.ModuleSpec:
    """A module that takes every call."""
    return importlib.machinery.ModuleSpec(name, Loader(), is_package=True)  # type: ignore[arg-type]
