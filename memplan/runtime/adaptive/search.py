"""Where a search for the largest size goes next: doubling outwards from a start, then bisection. Pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What is known of the largest size that fits. Sizes are counted from 1 in whatever unit is searched in."""

    fits: int = 0
    """Largest that fits."""
    fails: int | None = None
    """Smallest that does not; None: none is known."""
    most: int | None = None
    """Largest that is allowed."""
    stride: int = 1
    """How far the next jump outwards goes; it doubles with each."""
    start: int = 1
    """Where the search begins."""
    doubles: bool = True
    """Jump from the start to its double, as is right for a start that is no more than a start; False: a start that is
    believed in is left by 1, 2, 4 …, so that the true answer next to it takes two tries."""

    @property
    def is_closed(self) -> bool:
        """Is there nothing left to try?"""
        return self.fits == self.most or (self.fails is not None and self.fails - self.fits <= 1)


def next_size(known: Bracket) -> int:
    """The size to try next, in a bracket that is not closed."""
    if not known.fits and known.fails is None:
        wanted = known.start
    elif known.fails is None:
        wanted = known.fits * 2 if known.doubles else known.fits + known.stride
    elif not known.fits and not known.doubles:
        wanted = max(known.fails - known.stride, known.fails // 2)
    else:
        wanted = (known.fits + known.fails) // 2
    return wanted if known.most is None else min(wanted, known.most)


def narrowed(known: Bracket, size: int, *, fits: bool) -> Bracket:
    """The bracket after a try; a jump outwards from a believed start is followed by one twice as long."""
    is_outwards = (fits and known.fails is None and known.fits) or (not fits and not known.fits and known.fails)
    stride = known.stride * 2 if is_outwards else known.stride
    if fits:
        return replace(known, fits=max(known.fits, size), stride=stride)
    return replace(known, fails=size if known.fails is None else min(known.fails, size), stride=stride)
