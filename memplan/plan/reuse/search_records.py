"""Records that the search loops over: arrays where loops are compiled, lists where they are not."""

from typing import NamedTuple

from memplan.plan.reuse.table import Whole


class SearchShape(NamedTuple):
    """A problem in arrays; lists of lists are stored flat, row ``i`` from ``_start[i]`` to ``_start[i + 1]``."""

    size: Whole
    alignment: Whole
    first: Whole
    """Per buffer: its first section."""
    last: Whole
    """Per buffer: its last section."""
    section_start: Whole
    section: Whole
    """Per buffer: its sections."""
    member_start: Whole
    member: Whole
    """Per section: its buffers."""
    neighbour_start: Whole
    neighbour: Whole
    """Per buffer: those that share a section with it."""
    wall_start: Whole
    wall_low: Whole
    wall_high: Whole
    """Per buffer: bytes taken by buffers of fixed offset, by rising lower end."""
    nowhere: int
    """Above every offset that can be reached."""


class SearchState(NamedTuple):
    """The mutable state of a search."""

    offset: Whole
    """Per buffer: where it is placed, or NONE."""
    bound: Whole
    """Lowest offsets: of each buffer, then its support (what the placed ones below it impose), then section floors."""
    rest: Whole
    """Per section: bytes of its buffers that are not placed."""
    waiting: Whole
    """Per section: how many those are."""
    crossing: Whole
    """Per section: buffers not placed whose span includes it and the next one."""
    mark: Whole
    """Per buffer: 1 while its section is examined."""
    trail_place: Whole
    trail_value: Whole
    """Entries of ``bound`` that were overwritten, and by which value they are restored."""
    frame: Whole
    """The stack, FRAME entries per frame."""
    choice: Whole
    """Buffers to be tried, frame after frame."""
    control: Whole


class SearchTask(NamedTuple):
    """The task of one search."""

    capacity: int
    """Height that no buffer may exceed."""
    rank: Whole
    """Per buffer: its place in the order in which answers are tried."""
    anywhere: int
    """1: any section below the ceiling (see ``settle``) may be asked; 0: only those of the lowest floor."""
    tightest: int
    """1: the one with least bytes to waste is asked; 0: the one with fewest answers."""
    later: int
    """1: of sections that are equally hard the last one is asked; 0: the first one."""
