"""The inner loop of the search: buffers are put down one by one, and taken up again where that led nowhere.

    offset                 A *section* is a largest set of buffers alive together; s0 holds {A, B}, s1 {A, C}.
      ▲   s0    s1         Its *floor* is the lowest offset that a buffer of it which is not placed yet can have,
      │ ┌────┐             its *rest* the bytes of all of those: floor + rest > capacity ends a branch.
      │ │ B  │┌────┐
      │ └────┘│ C  │       A branch asks one section: who lies on your floor? Each buffer that could is one answer,
      │ ┌─────┴────┴┐      "nobody" is the last one, and it lifts the floor.
      └─┴─────A─────┴─►

Only *settled* placements are looked at: no buffer could be moved down alone. Where a placement fits, a settled one fits
(move buffers down until none moves: the sum of offsets falls with every move), so nothing is lost. In a settled
placement each buffer lies at the first possible offset on top of what lies below it; that is what makes lower limits
and supports exact, and what prices "nobody": who does not lie on the floor must lie on a buffer that is still to come.

All functions are compiled by numba if it is there: plain loops, integers, arrays (or lists), no allocation. They share
this file because numba keeps compiled code until the file of the function that is called changes, and no other.
"""

from memplan.plan.reuse.compiled import compiled
from memplan.plan.reuse.search_records import SearchShape, SearchState, SearchTask

PLACED, EXCLUDED, PAUSED = 0, 1, 2
"""How ``explore`` returns: all buffers placed, no placement possible, more nodes wanted."""
DEPTH, TRAIL, NODES, TRUNCATED = 0, 1, 2, 3
"""Places in ``control``: the frame on top, entries on the trail, nodes so far, whether a branch was given up."""
NONE = -1


FRAME = 9
"""Entries per frame: the next nine."""
LOW, HIGH, PARENT, SECTION, FLOOR, NEXT, UNDO, CHOICES, END = range(FRAME)
"""Sections from LOW to before HIGH; the frame to return to; who is asked, at which floor; next answer; trail length
before it; where its choices begin and end. The buffer placed by a frame is the choice before NEXT."""


@compiled
def lift(shape: SearchShape, buffer: int, offset: int) -> int:
    """First offset from ``offset`` on that is aligned and free of walls (sorted, so one pass is enough)."""
    alignment = shape.alignment[buffer]
    offset = -(-offset // alignment) * alignment
    for k in range(shape.wall_start[buffer], shape.wall_start[buffer + 1]):
        if offset < shape.wall_high[k] and offset + shape.size[buffer] > shape.wall_low[k]:
            offset = -(-shape.wall_high[k] // alignment) * alignment
    return offset


@compiled
def overwrite(state: SearchState, place: int, value: int) -> None:
    """Change a bound; ``undo`` brings the old one back. Callers see to it that the trail has room."""
    length = state.control[TRAIL]
    state.trail_place[length] = place
    state.trail_value[length] = state.bound[place]
    state.control[TRAIL] = length + 1
    state.bound[place] = value


@compiled
def undo(state: SearchState, length: int) -> None:
    """Restore bounds until the trail has this length."""
    for k in range(state.control[TRAIL] - 1, length - 1, -1):
        state.bound[state.trail_place[k]] = state.trail_value[k]
    state.control[TRAIL] = length


@compiled
def refresh_floor(shape: SearchShape, state: SearchState, capacity: int, section: int) -> bool:
    """Compute the floor of a section anew; False where what is left does not fit above it.

    The buffers of a section are alive together, so those that wait need their sum of bytes above the lowest of them.
    """
    count = len(state.offset)
    floor = shape.nowhere
    for k in range(shape.member_start[section], shape.member_start[section + 1]):
        buffer = shape.member[k]
        if state.offset[buffer] < 0 and state.bound[buffer] < floor:
            floor = state.bound[buffer]
    if floor != state.bound[2 * count + section]:
        overwrite(state, 2 * count + section, floor)
    return bool(floor + state.rest[section] <= capacity)


@compiled
def raise_bound(shape: SearchShape, state: SearchState, capacity: int, buffer: int, value: int) -> bool:
    """Lift the lower limit of a buffer, and the floors that stood on it; False where it no longer fits."""
    count = len(state.offset)
    if value + shape.size[buffer] > capacity:
        return False
    if state.control[TRAIL] + 4 * count + 2 * len(state.rest) > len(state.trail_place):
        state.control[TRUNCATED] = 1
        return False
    old = state.bound[buffer]
    overwrite(state, buffer, value)
    for k in range(shape.section_start[buffer], shape.section_start[buffer + 1]):
        section = shape.section[k]
        if state.bound[2 * count + section] == old and not refresh_floor(shape, state, capacity, section):
            return False
    return True


@compiled
def count_out(shape: SearchShape, state: SearchState, buffer: int, sign: int) -> None:
    """Take a buffer out of what its sections wait for (sign 1), or back into it (sign -1)."""
    for k in range(shape.section_start[buffer], shape.section_start[buffer + 1]):
        state.rest[shape.section[k]] -= sign * shape.size[buffer]
        state.waiting[shape.section[k]] -= sign
    for section in range(shape.first[buffer], shape.last[buffer]):
        state.crossing[section] -= sign


@compiled
def put(shape: SearchShape, state: SearchState, capacity: int, buffer: int, offset: int) -> bool:
    """Place a buffer; its neighbours that wait lie above it. False where one of them no longer fits."""
    count = len(state.offset)
    state.offset[buffer] = offset
    count_out(shape, state, buffer, 1)
    top = offset + shape.size[buffer]
    low, high = shape.first[buffer], shape.last[buffer]
    for k in range(shape.neighbour_start[buffer], shape.neighbour_start[buffer + 1]):
        other = shape.neighbour[k]
        if state.offset[other] >= 0:
            continue
        support = lift(shape, other, top)
        if state.bound[count + other] < support:
            overwrite(state, count + other, support)
        if state.bound[other] < support:
            overwrite(state, other, support)
            if support + shape.size[other] > capacity:
                return False
        low, high = min(low, shape.first[other]), max(high, shape.last[other])
    for section in range(low, high + 1):
        # Limits were lifted from below the top; a floor that is not below it did not stand on them.
        stale = state.waiting[section] > 0 and state.bound[2 * count + section] < top
        if stale and not refresh_floor(shape, state, capacity, section):
            return False
    return True


@compiled
def lowest_support(shape: SearchShape, state: SearchState, buffer: int, floor: int) -> int:
    """Lowest offset at which a buffer can lie on one that still waits; marked ones lie on ``floor`` or above.

    Its own support is too low for it. In a settled placement it then lies on a neighbour that is yet to be placed, and
    that one ends at its lower limit plus its size at the earliest. With floor NONE marked ones cannot lie below it.
    """
    lowest = shape.nowhere
    for k in range(shape.neighbour_start[buffer], shape.neighbour_start[buffer + 1]):
        other = shape.neighbour[k]
        if state.offset[other] >= 0 or (floor < 0 and state.mark[other]):
            continue
        base = state.bound[other]
        if state.mark[other] and base < floor:
            base = floor
        lowest = min(lowest, base + shape.size[other])
    return lowest if lowest == shape.nowhere else lift(shape, buffer, lowest)


@compiled
def leave_floor(shape: SearchShape, state: SearchState, capacity: int, section: int, floor: int) -> bool:
    """Nobody of the section lies on its floor: raise them all; False where they no longer fit.

    Its lowest buffer lies on something from outside the section, since all of the section lie above it: this gives the
    floor to come. Any other one may also lie on a buffer of the section, which itself lies on that floor or higher.
    """
    begin, end = shape.member_start[section], shape.member_start[section + 1]
    for k in range(begin, end):
        state.mark[shape.member[k]] = 1
    raised = shape.nowhere
    for k in range(begin, end):
        buffer = shape.member[k]
        if state.offset[buffer] < 0:
            limit = state.bound[buffer]
            raised = min(raised, lowest_support(shape, state, buffer, NONE) if limit == floor else limit)
    fits = bool(raised + state.rest[section] <= capacity)
    for k in range(begin, end):
        buffer = shape.member[k]
        if fits and state.offset[buffer] < 0 and state.bound[buffer] == floor:
            limit = max(lift(shape, buffer, raised), lowest_support(shape, state, buffer, raised))
            fits = raise_bound(shape, state, capacity, buffer, limit)
    for k in range(begin, end):
        state.mark[shape.member[k]] = 0
    return fits


@compiled
def settle(shape: SearchShape, state: SearchState, task: SearchTask, group: tuple[int, int]) -> int:
    """Raise buffers of a group that nothing supports; returns the *ceiling*, or NONE where one no longer fits.

    A section whose floor is below the ceiling may be asked: whoever waits ends at the ceiling or above it, so nothing
    can come to lie under a buffer that is placed below it.
    """
    low, high = group
    count = len(state.offset)
    while True:
        ceiling, lowest = shape.nowhere, shape.nowhere
        for buffer in range(count):
            if state.offset[buffer] < 0 and low <= shape.first[buffer] < high:
                lowest = min(lowest, state.bound[buffer])
                ceiling = min(ceiling, state.bound[buffer] + shape.size[buffer])
        if not task.anywhere:
            ceiling = lowest + 1
        changed = False
        for buffer in range(count):
            limit = state.bound[buffer]
            if state.offset[buffer] >= 0 or limit >= ceiling or state.bound[count + buffer] == limit:
                continue
            if low <= shape.first[buffer] < high:
                changed = True
                if not raise_bound(shape, state, task.capacity, buffer, lowest_support(shape, state, buffer, 0)):
                    return NONE
        if not changed:
            return ceiling


@compiled
def hardest_section(
    shape: SearchShape, state: SearchState, task: SearchTask, group: tuple[int, int], ceiling: int
) -> int:
    """The section to ask: fewest answers, then least bytes to waste; or least bytes to waste alone."""
    count = len(state.offset)
    best, fewest, least = NONE, shape.nowhere, shape.nowhere
    for section in range(group[0], group[1]):
        floor = state.bound[2 * count + section]
        if state.waiting[section] == 0 or floor >= ceiling:
            continue
        waste = task.capacity - floor - state.rest[section]
        answers = 0
        if not task.tightest:
            answers = 1 if waste > 0 else 0
            for k in range(shape.member_start[section], shape.member_start[section + 1]):
                buffer = shape.member[k]
                if state.offset[buffer] < 0 and state.bound[buffer] == floor:
                    answers += 1
        if answers < fewest or (answers == fewest and waste < least + task.later):
            best, fewest, least = section, answers, waste
    return best


@compiled
def open_frame(shape: SearchShape, state: SearchState, task: SearchTask, group: tuple[int, int], parent: int) -> bool:
    """Put the next question on the stack, its answers by rank; False where the group cannot be completed."""
    ceiling = settle(shape, state, task, group)
    if ceiling < 0:
        return False
    section = hardest_section(shape, state, task, group, ceiling)
    depth = state.control[DEPTH] + 1
    base = depth * FRAME
    begin = 0 if depth == 0 else state.frame[base - FRAME + END]
    width = shape.member_start[section + 1] - shape.member_start[section]
    room = len(state.trail_place) - state.control[TRAIL] >= 4 * len(state.offset) + 2 * len(state.rest)
    if not room or base + FRAME > len(state.frame) or begin + width > len(state.choice):
        state.control[TRUNCATED] = 1
        return False
    floor = state.bound[2 * len(state.offset) + section]
    end = begin
    for k in range(shape.member_start[section], shape.member_start[section + 1]):
        buffer = shape.member[k]
        if state.offset[buffer] >= 0 or state.bound[buffer] != floor:
            continue
        place = end
        while place > begin and task.rank[state.choice[place - 1]] > task.rank[buffer]:
            state.choice[place] = state.choice[place - 1]
            place -= 1
        state.choice[place] = buffer
        end += 1
    state.frame[base + LOW], state.frame[base + HIGH], state.frame[base + PARENT] = group[0], group[1], parent
    state.frame[base + SECTION], state.frame[base + FLOOR], state.frame[base + NEXT] = section, floor, begin
    state.frame[base + UNDO], state.frame[base + CHOICES], state.frame[base + END] = state.control[TRAIL], begin, end
    state.control[DEPTH] = depth
    return True


@compiled
def take_back(shape: SearchShape, state: SearchState) -> None:
    """Undo the answer that the frame on top has given, if any."""
    base = state.control[DEPTH] * FRAME
    given = state.frame[base + NEXT] - 1
    if state.frame[base + CHOICES] <= given < state.frame[base + END]:
        buffer = state.choice[given]
        state.offset[buffer] = NONE
        count_out(shape, state, buffer, -1)
    undo(state, state.frame[base + UNDO])


@compiled
def try_next(shape: SearchShape, state: SearchState, capacity: int) -> bool:
    """Give the next answers of the frame on top until one fits; False where there are no more."""
    base = state.control[DEPTH] * FRAME
    while True:
        take_back(shape, state)
        answer, end = state.frame[base + NEXT], state.frame[base + END]
        state.frame[base + NEXT] = answer + 1
        if answer > end:
            return False
        section, floor = state.frame[base + SECTION], state.frame[base + FLOOR]
        if answer < end:
            if put(shape, state, capacity, state.choice[answer], floor):
                return True
        elif leave_floor(shape, state, capacity, section, floor):
            return True


@compiled
def back_to(shape: SearchShape, state: SearchState, frame: int) -> None:
    """Drop every frame above this one, and its answers."""
    while state.control[DEPTH] > frame:
        take_back(shape, state)
        state.control[DEPTH] -= 1


@compiled
def begin(shape: SearchShape, state: SearchState, capacity: int) -> bool:
    """Nothing is placed, nothing is on the stack; False where it is plain that the buffers do not fit."""
    count = len(state.offset)
    for k in range(len(state.rest)):
        state.rest[k], state.waiting[k], state.crossing[k] = 0, 0, 0
    for buffer in range(count):
        state.offset[buffer] = NONE
        count_out(shape, state, buffer, -1)
        state.bound[buffer] = state.bound[count + buffer] = lift(shape, buffer, 0)
    for k in range(len(state.control)):
        state.control[k] = 0
    state.control[DEPTH] = NONE
    fits = True
    for buffer in range(count):
        fits = fits and bool(state.bound[buffer] + shape.size[buffer] <= capacity)
    for section in range(len(state.rest)):
        state.bound[2 * count + section] = 0
        above = refresh_floor(shape, state, capacity, section)
        fits = fits and (above or state.waiting[section] == 0)
    state.control[TRAIL] = 0
    return bool(fits)


@compiled
def next_group(state: SearchState) -> tuple[int, int, int]:
    """Where to go on: from which section to before which one, and the frame to return to; all done where both agree.

    Sections between which no waiting buffer spans do not depend on each other. The frame is the last one in whose
    sections something waits.
    """
    parent = state.control[DEPTH]
    while True:
        low, high = 0, len(state.rest)
        if parent >= 0:
            low, high = state.frame[parent * FRAME + LOW], state.frame[parent * FRAME + HIGH]
        while low < high and state.waiting[low] == 0:
            low += 1
        if low < high or parent < 0:
            break
        parent = state.frame[parent * FRAME + PARENT]
    cut = min(low + 1, high)
    while cut < high and state.crossing[cut - 1] > 0:
        cut += 1
    return low, cut, parent


@compiled
def explore(shape: SearchShape, state: SearchState, task: SearchTask, nodes: int) -> int:
    """Search on from where the state stands, for at most so many nodes.

    A group that cannot be completed is not helped by other answers in a group beside it: the search returns to the
    frame at which they parted, and leaves out everything in between.

    Args:
        shape: The problem.
        state: From ``begin``, or as this function left it when it paused.
        task: What is wanted.
        nodes: Questions put before it pauses.

    Returns:
        PLACED, EXCLUDED (a proof, unless TRUNCATED is set in the control) or PAUSED.
    """
    limit = state.control[NODES] + nodes
    while True:
        low, high, parent = next_group(state)
        if low == high:
            return PLACED
        if state.control[NODES] >= limit:
            return PAUSED
        state.control[NODES] += 1
        if not open_frame(shape, state, task, (low, high), parent):
            back_to(shape, state, parent)
        while state.control[DEPTH] >= 0 and not try_next(shape, state, task.capacity):
            back_to(shape, state, state.frame[state.control[DEPTH] * FRAME + PARENT])
        if state.control[DEPTH] < 0:
            return EXCLUDED
