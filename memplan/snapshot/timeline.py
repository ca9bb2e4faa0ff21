"""A history as curves of bytes, and who holds the memory at a moment of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import BlockLayout, SegmentLayout
from memplan.snapshot.comparison import HistoryReplay
from memplan.snapshot.frames import BEFORE_RECORDING, CodePlace, inner_place, place_of
from memplan.snapshot.records import DeviceSnapshot, Frame
from memplan.snapshot.start_state import blocks_before
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Bytes before the first event (index 0) and after each one (index of the event + 1)."""

    allocated: Sequence[int]
    """In blocks that are not free, waiting for another stream included."""
    requested: Sequence[int]
    """Asked for, of the same blocks."""
    reserved: Sequence[int]
    """In segments."""

    @property
    def peak(self) -> int:
        """Index at which ``allocated`` first is at its maximum."""
        return _first_maximum(self.allocated)

    @property
    def reserved_peak(self) -> int:
        """Index at which ``reserved`` first is at its maximum."""
        return _first_maximum(self.reserved)


class Holding(NamedTuple):
    """One allocation that is alive at some moment."""

    size: Bytes
    """Of its block."""
    requested: Bytes
    """Bytes asked for."""
    frames: tuple[Frame, ...]
    """Call stack that asked for it, innermost first; empty where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTotal:
    """A place in the program, and what it holds."""

    place: CodePlace
    """Where the memory was asked for."""
    size: Bytes
    """Bytes in its blocks."""
    count: int
    """Number of blocks."""
    stack: tuple[Frame, ...]
    """Call stack that holds most of it, innermost first."""
    parts: tuple["PlaceTotal", ...] = ()
    """The same bytes by the library code in between, largest first; empty where no library lies in between."""


def timeline(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, replay: HistoryReplay | None = None
) -> Timeline:
    """Curves over a history.

    A replay knows how large blocks were; without it requests are rounded.
    """
    # Lists, not arrays: a hostile file's sizes may add up to more than 64 bits.
    curves: tuple[list[int], list[int], list[int]] = ([], [], [])
    for state in _states(snapshot, policy, replay):
        for curve, total in zip(curves, (state.allocated, state.requested, state.reserved), strict=True):
            curve.append(total)
    return Timeline(allocated=curves[0], requested=curves[1], reserved=curves[2])


def holdings(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, replay: HistoryReplay | None, index: int
) -> tuple[Holding, ...]:
    """What is alive at an index of the timeline; arguments as for ``timeline``."""
    state = next(islice(_states(snapshot, policy, replay), index, None))
    return tuple(state.live.values())


def held_by_place(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, replay: HistoryReplay | None, moments: Iterable[int]
) -> Iterator[Counter[CodePlace]]:
    """Bytes by place in the program at rising indices of the timeline; arguments as for ``timeline``."""
    wanted, places = iter(moments), dict[int, CodePlace]()
    moment = next(wanted, -1)
    for index, state in enumerate(_states(snapshot, policy, replay)):
        if index == moment:
            held: Counter[CodePlace] = Counter()
            for holding in state.live.values():
                # Equal stacks are one object, so an identity stands for a stack.
                key = id(holding.frames)
                place = places.get(key) or places.setdefault(key, place_of(holding.frames))
                held[place] += holding.size
            yield held
            moment = next(wanted, -1)


def holdings_now(snapshot: DeviceSnapshot) -> tuple[Holding, ...]:
    """What is alive in the snapshot itself."""
    return tuple(found for _, blocks in segments_now(snapshot) for _, found in blocks if found is not None)


def segments_now(
    snapshot: DeviceSnapshot,
) -> Iterator[tuple[SegmentLayout, tuple[tuple[BlockLayout, Holding | None], ...]]]:
    """The segments of the snapshot, and what lies in each of their blocks; None in free ones."""
    recorded = _recorded_stacks(snapshot)
    for segment in snapshot.layout.segments:
        yield segment, tuple((block, _held(snapshot, block, recorded)) for block in segment.blocks)


def _held(snapshot: DeviceSnapshot, block: BlockLayout, recorded: Mapping[int, tuple[Frame, ...]]) -> Holding | None:
    if block.state == "free":
        return None
    return Holding(block.size, block.requested, _stack(snapshot, block.address, recorded.get(block.address)))


def _recorded_stacks(snapshot: DeviceSnapshot) -> dict[int, tuple[Frame, ...]]:
    """Address → call stack of the last allocation there, in the history."""
    return {event.address: event.frames for event in snapshot.events if event.action == "alloc"}


def _stack(snapshot: DeviceSnapshot, address: int, recorded: tuple[Frame, ...] | None) -> tuple[Frame, ...]:
    """Call stack of a block that is alive at the end, ``recorded`` being that in the history, if it is from there."""
    found = snapshot.block_frames.get(address) or recorded
    if found is None:
        found = BEFORE_RECORDING if snapshot.events else ()
    return found


def owners(held: Iterable[Holding]) -> tuple[PlaceTotal, ...]:
    """Who holds how much, by place in the program, largest first."""
    by_place: defaultdict[CodePlace, list[PlaceTotal]] = defaultdict(list)
    for owner in stacks(held):
        by_place[owner.place].append(owner)
    return _largest_first(_merged(place, found, _largest_first(_parts(found))) for place, found in by_place.items())


def _parts(found: Iterable[PlaceTotal]) -> Iterator[PlaceTotal]:
    by_place: defaultdict[CodePlace, list[PlaceTotal]] = defaultdict(list)
    for owner in found:
        place = inner_place(owner.stack)
        if place is not None:
            by_place[place].append(owner)
    return (_merged(place, inside, ()) for place, inside in by_place.items())


def _merged(place: CodePlace, found: Sequence[PlaceTotal], parts: tuple[PlaceTotal, ...]) -> PlaceTotal:
    size = Bytes(sum(owner.size for owner in found))
    return PlaceTotal(
        place=place, size=size, count=sum(owner.count for owner in found), stack=found[0].stack, parts=parts
    )


def _largest_first(found: Iterable[PlaceTotal]) -> tuple[PlaceTotal, ...]:
    return tuple(sorted(found, key=lambda owner: -owner.size))


def stacks(held: Iterable[Holding]) -> tuple[PlaceTotal, ...]:
    """Who holds how much, by whole call stack, largest first."""
    sizes: defaultdict[int, int] = defaultdict(int)
    counts: Counter[int] = Counter()
    frames: dict[int, tuple[Frame, ...]] = {}
    for holding in held:
        # Equal stacks are one object, so an identity stands for a stack.
        key = id(holding.frames)
        sizes[key] += holding.size
        counts[key] += 1
        frames[key] = holding.frames
    return tuple(
        PlaceTotal(place=place_of(frames[key]), size=Bytes(sizes[key]), count=counts[key], stack=frames[key])
        for key in sorted(sizes, key=lambda key: -sizes[key])
    )


@dataclass(slots=True)
class _State:
    """A moment of a history; mutable, for there are as many as events."""

    live: dict[int, Holding]
    allocated: int
    requested: int
    reserved: int

    def put(self, address: int, holding: Holding | None) -> None:
        """Let a block be what is alive at an address; None for nothing."""
        gone = self.live.pop(address, _NOTHING)
        if holding is not None:
            self.live[address] = holding
        now = holding or _NOTHING
        self.allocated += now.size - gone.size
        self.requested += now.requested - gone.requested


_NOTHING = Holding(Bytes(0), Bytes(0), ())


def _states(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, replay: HistoryReplay | None
) -> Iterator[_State]:
    """The state before the first event and after each one: one object, which changes."""
    state = _state_before(snapshot, policy, replay)
    yield state
    sizes = iter(replay.block_sizes if replay is not None else ())
    for event in snapshot.events:
        match event.action:
            case "alloc":
                size = next(sizes, 0) or (policy.round_size(event.nbytes) if event.nbytes else 0)
                state.put(event.address, Holding(Bytes(size), Bytes(event.nbytes), event.frames))
            case "free_completed":
                state.put(event.address, None)
            case "segment_alloc" | "segment_map":
                state.reserved += event.nbytes
            case "segment_free" | "segment_unmap":
                state.reserved -= event.nbytes
            case _:
                pass
        yield state


def _state_before(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, replay: HistoryReplay | None
) -> _State:
    # A stack in the snapshot belongs to the last block at its address.
    reused = _recorded_stacks(snapshot)
    sizes = replay.start_sizes if replay is not None else {}
    reserved = snapshot.layout.reserved - sum(
        event.nbytes if event.action in _TAKES else -event.nbytes
        for event in snapshot.events
        if event.action in _TAKES or event.action in _GIVES
    )
    state = _State({}, 0, 0, reserved)
    for address, block in blocks_before(snapshot, policy).items():
        frames = BEFORE_RECORDING if address in reused else _stack(snapshot, address, None)
        state.put(address, Holding(Bytes(sizes.get(address, block.size)), block.requested, frames))
    return state


_TAKES = frozenset({"segment_alloc", "segment_map"})
_GIVES = frozenset({"segment_free", "segment_unmap"})


def _first_maximum(values: Sequence[int]) -> int:
    return max(range(len(values)), key=values.__getitem__)
