"""Random numbers of Python's ``random`` and of ``numpy.random``, which draw for real, on the host.

Where a program gives no seed, each of its runs draws others; each trace draws the same ones. For the ends of the
interval steps draw the least or the greatest number each time, where they ask for one, and else from another seed. A
program's own seed is left as it is: what it draws in a trace it draws in its run.
"""

import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Literal
from unittest import mock

import numpy as np

Drawn = Literal["likely", "least", "greatest"]
"""What steps draw."""
_SEEDS: Mapping[Drawn, int] = {"likely": 0, "least": 1, "greatest": 2}
MOST_ALIKE = 100
"""How often a line draws an end of its range in a step; then it draws for real, as it may wait for another number.

Chosen above the layers of most models, for each of which the same line may draw."""
_TINY = 2.0**-53
"""The step of ``random.random()``: its least number is drawn once in 2^53 times, and has no logarithm."""

Ends = tuple[Any, Any]


def _share(*_: Any, **__: Any) -> Ends:
    return _TINY, 1 - _TINY


def _between(low: float = 0.0, high: float = 1.0, *_: Any, **__: Any) -> Ends:
    return low, high


def _whole(a: int, b: int) -> Ends:
    return a, b


def _below(low: int, high: int | None = None, *_: Any, **__: Any) -> Ends:
    return (0, low - 1) if high is None else (low, high - 1)


def _in_range(*of: int) -> Ends:
    numbers = range(*of)
    return numbers[0], numbers[-1]


def _one_of(a: Any, *_: Any, **__: Any) -> Ends:
    """The least and the greatest of numbers, the first and the last of anything else."""
    items = range(a) if isinstance(a, int) else a
    if all(isinstance(item, int | float | np.number) for item in items):
        return min(items), max(items)
    return items[0], items[len(items) - 1]


_PYTHON: Mapping[str, Callable[..., Ends]] = {
    "random": _share, "uniform": _whole, "randint": _whole, "randrange": _in_range, "choice": _one_of,
}  # fmt: skip
"""Functions of ``random`` that draw one number → the ends of what they draw from."""
_NUMPY: Mapping[str, Callable[..., Ends]] = {
    **dict.fromkeys(("rand", "random", "random_sample", "beta"), _share),
    "uniform": _between, "randint": _below, "choice": _one_of,
}  # fmt: skip
"""The same of ``numpy.random``; where more numbers are asked for, they are drawn for real."""


class HostDraws:
    """Draws by ``random`` and ``numpy.random`` while a program is traced.

    Args:
        drawn: What steps draw.
    """

    def __init__(self, drawn: Drawn) -> None:
        self._generators = (
            _Generator(random, random.getstate, random.setstate, _PYTHON, drawn),
            _Generator(np.random, np.random.get_state, np.random.set_state, _NUMPY, drawn),
        )

    @property
    def differ(self) -> bool:
        """Did the steps draw what those of another run draw otherwise?"""
        return any(each.differs for each in self._generators)

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Draw from a seed in the context, which leaves the generators as it found them."""
        with ExitStack() as stack:
            for each in self._generators:
                stack.enter_context(each.playing())
            yield

    def begin_step(self) -> None:
        """Draw as steps do from here on."""
        for each in self._generators:
            each.begin_step()


class _Generator:
    """The state that all functions of a module draw from.

    Args:
        module: Has ``seed`` and the functions.
        get: Returns the state.
        put: Sets it.
        ends: Functions that draw one number → the ends of what they draw from.
        drawn: What steps draw.
    """

    def __init__(
        self,
        module: ModuleType,
        get: Callable[[], Any],
        put: Callable[[Any], None],
        ends: Mapping[str, Callable[..., Ends]],
        drawn: Drawn,
    ) -> None:
        self._module, self._get, self._put, self._ends, self._drawn = module, get, put, ends, drawn
        self._seed: Callable[..., None] = module.seed
        self._has_own_seed = False
        self._states = (b"", b"")
        self._alike: Counter[object] = Counter()

    @property
    def differs(self) -> bool:
        """Did steps draw, and did no seed of the program's own say what?"""
        before, after = self._states
        return not self._has_own_seed and before != after

    @contextmanager
    def playing(self) -> Iterator[None]:
        former = self._get()
        self._seed(_SEEDS["likely"])
        replaced: dict[str, Any] = {"seed": self._given_seed}
        if self._drawn != "likely":
            replaced |= {name: self._drawing(name) for name in self._ends}
        try:
            with mock.patch.multiple(self._module, **replaced):
                yield
        finally:
            self._states = self._states[0], pickle.dumps(self._get()) if self._states[0] else b""
            self._put(former)

    def begin_step(self) -> None:
        self._alike.clear()
        if self._states[0]:
            return
        if self._drawn != "likely" and not self._has_own_seed:
            self._seed(_SEEDS[self._drawn])
        self._states = pickle.dumps(self._get()), b""

    def _given_seed(self, seed: Any = None, *args: Any, **kwargs: Any) -> None:
        self._has_own_seed = seed is not None
        self._seed(seed, *args, **kwargs)

    def _drawing(self, name: str) -> Callable[..., Any]:
        draw, ends = getattr(self._module, name), self._ends[name]

        def drawn(*args: Any, **kwargs: Any) -> Any:
            number = draw(*args, **kwargs)
            caller = sys._getframe(1)
            place = caller.f_code, caller.f_lasti
            self._alike[place] += 1
            # ``random.choice`` may choose among arrays, NumPy makes them of what it draws.
            is_array = isinstance(number, np.ndarray) and self._module is np.random
            several = is_array and number.size != 1
            if not self._states[0] or self._has_own_seed or several or self._alike[place] > MOST_ALIKE:
                return number
            end = ends(*args, **kwargs)[self._drawn == "greatest"]
            return np.full_like(number, end) if is_array else end

        return drawn
