"""How long each step's sequences are: distributions as typed, and the lengths drawn from them."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from memplan.errors import UsageError
from memplan.files.read import UnreadableError, read_text

LONGEST = 2**31
"""Largest length accepted: beyond it PyTorch's 32-bit indexing ends, as for ``--seq-len``."""
FORMS = "write fixed, fixed:512, uniform:128-2048, normal:512,128, lognormal:512,0.6,max=4096, or a file of lengths"
SIGMAS = 4
"""Where a normal or lognormal distribution ends without ``min=`` or ``max=``: one draw in 16,000 lies beyond."""
LEAST_SHARE = 0.001
"""Least probability of the bounds: what lies outside is drawn again."""

_SPEC = re.compile(r"(?P<kind>fixed|uniform|normal|lognormal)(?::(?P<rest>.*))?")
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Every step has the same length."""

    length: int | None
    """Tokens; None takes the job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every length from ``low`` to ``high``, both included, is as likely."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Rounded draws around a mean; what falls outside the bounds is drawn again."""

    mean: float
    deviation: float
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """``median * exp(sigma * z)``, rounded; what falls outside the bounds is drawn again."""

    median: float
    sigma: float
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Lengths from a file, in its order and from the start again when they run out."""

    lengths: tuple[int, ...]


Distribution = Fixed | Uniform | Normal | Lognormal | Listed
Drawn = Uniform | Normal | Lognormal | Listed
"""What lengths can be drawn from; of a file, each line is as likely."""


def parse_distribution(text: str) -> Distribution:
    """Read a ``--seq-len-dist``.

    A file has one length per line; empty lines and ``#`` comments count not.

    Raises:
        UsageError: The text is none of the forms, a number makes no sense, or the file cannot be read.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        return _listed(Path(text.strip()), text)
    rest = match["rest"]
    match match["kind"]:
        case "fixed":
            return Fixed(length=None if rest is None else _length(rest, text))
        case "uniform":
            return _uniform(rest or "", text)
        case "normal":
            (mean, deviation), given = _numbers(rest or "", text)
            low, high = _bounds(given, mean - SIGMAS * deviation, mean + SIGMAS * deviation, text)
            _check_share(NormalDist(mean, deviation), low - 0.5, high + 0.5, text)
            return Normal(mean=mean, deviation=deviation, low=low, high=high)
        case _:
            (median, sigma), given = _numbers(rest or "", text)
            reach = _exp(SIGMAS * sigma)
            low, high = _bounds(given, median / reach, median * reach, text)
            _check_share(NormalDist(math.log(median), sigma), math.log(low - 0.5), math.log(high + 0.5), text)
            return Lognormal(median=median, sigma=sigma, low=low, high=high)


def draw_lengths(distribution: Distribution, steps: int, *, seed: int, default: int | None = None) -> tuple[int, ...]:
    """Lengths of so many steps; the same seed gives the same lengths on every machine.

    ``default`` is what ``fixed`` without a number takes; None gives 0, a step without sequences.
    """
    # Seeded on purpose: a simulation has to be repeatable, nothing here is a secret.
    source = random.Random(seed)  # noqa: S311
    match distribution:
        case Fixed(length=length):
            return ((length or default or 0),) * steps
        case Listed(lengths=lengths):
            return tuple(lengths[step % len(lengths)] for step in range(steps))
        case Uniform() | Normal() | Lognormal():
            return tuple(draw(distribution, source) for _ in range(steps))


def draw(distribution: Drawn, source: random.Random) -> int:
    """Return one length."""
    if isinstance(distribution, Listed):
        return source.choice(distribution.lengths)
    if isinstance(distribution, Uniform):
        return source.randint(distribution.low, distribution.high)
    while True:
        if isinstance(distribution, Normal):
            length = round(source.gauss(distribution.mean, distribution.deviation))
        else:
            length = round(min(distribution.median * _exp(distribution.sigma * source.gauss(0, 1)), 2 * LONGEST))
        if distribution.low <= length <= distribution.high:
            return length


def possible(distribution: Drawn) -> Sequence[int]:
    """Return every length that can be drawn, ascending."""
    if isinstance(distribution, Listed):
        return sorted(set(distribution.lengths))
    return range(distribution.low, distribution.high + 1)


def share_from(distribution: Drawn, length: int) -> float:
    """Return how likely a drawn length is at least this long."""
    match distribution:
        case Listed(lengths=lengths):
            return sum(each >= length for each in lengths) / len(lengths)
        case Uniform(low=low, high=high):
            return min(1.0, max(0, high + 1 - length) / (high + 1 - low))
        case Normal(mean=mean, deviation=deviation):
            curve, edges = NormalDist(mean, deviation), (distribution.low, length, distribution.high + 1)
            below = [curve.cdf(edge - 0.5) for edge in edges]
        case Lognormal(median=median, sigma=sigma):
            curve, edges = NormalDist(math.log(median), sigma), (distribution.low, length, distribution.high + 1)
            below = [curve.cdf(math.log(edge - 0.5)) for edge in edges]
    return min(1.0, max(0.0, below[2] - below[1]) / (below[2] - below[0]))


def _exp(exponent: float) -> float:
    """``exp`` without overflow: what is cut off lies beyond every length anyway."""
    return math.exp(min(exponent, 700.0))


def _refusal(text: str, reason: str, *, hint: str = FORMS) -> UsageError:
    return UsageError(f"--seq-len-dist {text}: {reason}", hint=hint)


def _length(word: str, text: str) -> int:
    if not re.fullmatch(r"\d+", word.strip()) or not 1 <= int(word) <= LONGEST:
        raise _refusal(text, f"'{word.strip()}' is not a length between 1 and {LONGEST}")
    return int(word)


def _uniform(rest: str, text: str) -> Uniform:
    low, dash, high = rest.partition("-")
    if not dash:
        raise _refusal(text, "the range is missing")
    distribution = Uniform(low=_length(low, text), high=_length(high, text))
    if distribution.low > distribution.high:
        raise _refusal(text, f"the range runs backwards, from {distribution.low} to {distribution.high}")
    return distribution


def _numbers(rest: str, text: str) -> tuple[tuple[float, float], Mapping[str, str]]:
    """The two numbers of a distribution, and its ``min=`` and ``max=``."""
    words = [word.strip() for word in rest.split(",")]
    bounds = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word]
    unknown = sorted(set(bounds) - {"min", "max"})
    if unknown:
        raise _refusal(text, f"'{unknown[0]}=' is not known; there are min= and max=")
    if len(plain) != 2 or not all(_NUMBER.fullmatch(word) for word in plain):
        raise _refusal(text, "it takes two numbers")
    first, second = float(plain[0]), float(plain[1])
    if not first or not second:
        raise _refusal(text, "both numbers must be above 0")
    return (first, second), bounds


def _bounds(given: Mapping[str, str], low: float, high: float, text: str) -> tuple[int, int]:
    least = _length(given["min"], text) if "min" in given else max(1, math.floor(min(low, LONGEST)))
    most = _length(given["max"], text) if "max" in given else min(LONGEST, math.ceil(high))
    if least > most:
        raise _refusal(text, f"next to nothing lies between {least} and {most}")
    return least, most


def _check_share(distribution: NormalDist, low: float, high: float, text: str) -> None:
    """Redrawing ends only if the bounds hold a fair share of the distribution."""
    if distribution.cdf(high) - distribution.cdf(low) < LEAST_SHARE:
        raise _refusal(text, "next to nothing lies between its bounds")


def _listed(path: Path, text: str) -> Listed:
    try:
        lines = read_text(path).splitlines()
    except UnreadableError as error:
        raise _refusal(text, f"it is neither a distribution nor a file that can be read ({error})") from None
    words = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    wrong = [(number, word) for number, word in words if word and not re.fullmatch(r"0*[1-9]\d*", word)]
    if wrong:
        number, word = wrong[0]
        raise UsageError(f"'{word[:40]}' is not a length", where=f"{path}:{number}", hint="one length per line")
    lengths = tuple(_length(word, text) for _, word in words if word)
    if not lengths:
        raise _refusal(text, "the file holds no lengths", hint="one length per line")
    return Listed(lengths=lengths)
