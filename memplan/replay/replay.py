"""Plays streams of requests to an allocator and keeps the peaks; repeats the last step until nothing changes any more.

How a step repeats. Its requests name allocations by key. Some keys it frees were born before it: what the previous step
left behind. ``rename`` says which allocation takes whose place once the step is over:

    prefix            step, as traced             step again                  rename = {g1: g2}
    ───────────┐┌─────────────────────────┐┌─────────────────────────┐
     alloc g1  ││ free g1  …  alloc g2    ││ free g1  …  alloc g2    │
               ││      g1: from the       ││      g1: now the        │
               ││      prefix             ││      g2 of last time    │

After every repetition each key ``old`` in ``rename`` stands for what ``rename[old]`` stood for, all at once; so a value
that lives for two steps is a chain, ``{a: b, b: c}``. What is born in the step, still alive at its end and nobody's
successor stays for ever, once more in every repetition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from memplan.replay.allocator import Policy, make_allocator
from memplan.replay.play import Player
from memplan.replay.records import MemoryProfile, RepeatedTurn, Request
from memplan.units import Bytes

MAX_STEPS = 64
"""Default for how often a step is repeated at most; small traced models settle within 2 to 36 repetitions."""
STILL = 2
"""Repetitions that raise the peak no further, after which it is taken not to grow."""


def replay(
    requests: Sequence[Request],
    *,
    policy: Policy,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
    turns: Sequence[RepeatedTurn] = (),
) -> MemoryProfile:
    """Play a stream once.

    Args:
        requests: What a program asks for, in order.
        policy: The allocator's options, or ``NoCaching()``.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.
        turns: Stretches that stand for more.

    Returns:
        Peaks and end state; ``out_of_memory`` is set if the device was full, and the replay ended there.

    Raises:
        MemplanError: The stream frees what is not alive.
    """
    player = Player(make_allocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes))
    return player.profile(steps=1, settled=player.play_with_turns(requests, turns))


def replay_steps(
    prefix: Sequence[Request],
    step: Sequence[Request],
    rename: Mapping[int, int],
    *,
    policy: Policy,
    limit_bytes: int | None = None,
    device_bytes: int | None = None,
    max_steps: int = MAX_STEPS,
    turns: Sequence[RepeatedTurn] = (),
    while_it_grows: bool = False,
) -> MemoryProfile:
    """Play ``prefix``, then ``step`` until the allocator's state repeats; the module page has a picture.

    Event indices in the result count on through the repetitions: index ``i`` beyond the prefix is event
    ``(i - len(prefix)) % len(step)`` of the step.

    Args:
        prefix: Set-up and all steps before the last, e.g. from ``memplan.replay.stream.request_stream``.
        step: The last step.
        rename: Key freed in the step but born before it → key that stands in its place after one more repetition.
        policy: The allocator's options, or ``NoCaching()``.
        limit_bytes: Memory that the device can give the allocator; None for no limit.
        device_bytes: The device's total memory, where it differs from ``limit_bytes``.
        max_steps: Most repetitions, at least 1.
        turns: Stretches of ``prefix`` and ``step`` that stand for more.
        while_it_grows: Stop where the reserved peak has not grown for ``STILL`` repetitions: a fraction of the time,
            and the same peak unless it grows again after them.

    Returns:
        Peaks over everything played; ``steps_replayed`` counts the repetitions of ``step``.

    Raises:
        ValueError: ``rename`` does not close the step: a key it needs is missing, dead or used twice.
        MemplanError: The stream frees what is not alive.
    """
    _check_rename(prefix, step, rename)
    player = Player(make_allocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes))
    of_step = [
        turn._replace(first=turn.first - len(prefix), end=turn.end - len(prefix))
        for turn in turns
        if turn.first >= len(prefix)
    ]
    if not player.play_with_turns(prefix, turns[: len(turns) - len(of_step)]):
        return player.profile(steps=0, settled=False)
    seen = set() if while_it_grows else {_state(player, rename)}
    levels = [player.peak_reserved]
    for count in range(1, max_steps + 1):
        if not player.play_with_turns(step, of_step):
            return player.profile(steps=count, settled=False)
        player.rename(rename)
        levels.append(player.peak_reserved)
        if while_it_grows:
            if count >= STILL and levels[-1] == levels[-1 - STILL]:
                return player.profile(steps=count, settled=False)
            continue
        state = _state(player, rename)
        if state in seen:
            return player.profile(steps=count, settled=True)
        seen.add(state)
    return replace(player.profile(steps=max_steps, settled=False), growth=_growth(levels))


def _growth(levels: Sequence[int]) -> Bytes:
    """Growth of the reserved peak by a repetition, where it grew in every quarter of them; else it only wanders."""
    quarter = (len(levels) - 1) // 4
    marks = [levels[len(levels) - 1 - quarter * count] for count in range(5)]
    grows = quarter and all(later > earlier for later, earlier in pairwise(marks))
    return Bytes((levels[-1] - levels[-1 - quarter]) // quarter if grows else 0)


def _state(player: Player, rename: Mapping[int, int]) -> tuple[object, ...]:
    return player.allocator.fingerprint({old: player.live[old] for old in rename})


def _survivors(requests: Sequence[Request], alive: frozenset[int] = frozenset()) -> frozenset[int]:
    """Keys alive after a stretch."""
    keys = set(alive)
    for request in requests:
        if request.action == "alloc":
            keys.add(request.key)
        elif request.action == "free":
            keys.discard(request.key)
    return frozenset(keys)


def _carried_in(step: Sequence[Request]) -> frozenset[int]:
    """Keys that a step frees and did not allocate."""
    born: set[int] = set()
    carried: set[int] = set()
    for request in step:
        if request.action == "alloc":
            born.add(request.key)
        elif request.action == "free" and request.key not in born:
            carried.add(request.key)
    return frozenset(carried)


def _check_rename(prefix: Sequence[Request], step: Sequence[Request], rename: Mapping[int, int]) -> None:
    before = _survivors(prefix)
    after = _survivors(step, before)
    olds, news = frozenset(rename), frozenset(rename.values())
    complaints = (
        (_carried_in(step) - olds, "the step frees keys {} from before it that `rename` does not replace"),
        (olds - before, "`rename` replaces keys {} that are not alive when the step begins"),
        (news - after, "`rename` puts keys {} in place of others, but they are not alive when the step ends"),
        ((olds & after) - news, "`rename` replaces keys {} that are alive when the step ends and would be lost"),
    )
    for keys, complaint in complaints:
        if keys:
            raise ValueError(complaint.format(sorted(keys)[:5]))
    if len(news) < len(rename):
        raise ValueError("`rename` puts one key in place of several")
