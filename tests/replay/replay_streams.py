"""Hypothesis strategies for request streams."""

from hypothesis import strategies as st

from memplan.replay.records import ALL_STREAMS, Request

KIB, MIB = 1 << 10, 1 << 20
sizes = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 2 * MIB),
    st.sampled_from(
        [512, MIB - 512, MIB, MIB + 1, 2 * MIB, 9 * MIB, 10 * MIB - 1, 10 * MIB, 19 * MIB, 20 * MIB, 21 * MIB, 25 * MIB]
    ),
    st.integers(MIB, 48 * MIB),
)


@st.composite
def requests(draw, max_events=60, streams=2, allocation_sizes=sizes, first_key=0):
    """Allocations and frees in any order that a program could produce."""
    alive, found, key = [], [], first_key
    for _ in range(draw(st.integers(0, max_events))):
        if alive and draw(st.booleans()):
            victim = alive.pop(draw(st.integers(0, len(alive) - 1)))
            found.append(Request("free", victim, 0, 0))
        else:
            found.append(Request("alloc", key, draw(allocation_sizes), draw(st.integers(0, streams - 1))))
            alive.append(key)
            key += 1
    return found


class Program:
    """What a program may ask for next, and what it has asked for."""

    def __init__(self, draw, streams, allocation_sizes, pools):
        self.draw, self.streams, self.sizes, self.pools = draw, streams, allocation_sizes, pools
        self.stream = []
        self.alive, self.key = [], 0
        self.open, self.users, self.next_pool = [], {}, 1

    def actions(self):
        yield from ("alloc", "alloc", "synchronize", "empty_cache")
        if self.alive:
            yield from ("free", "free", "record_stream", "record_stream")
        if self.pools:
            yield "pool_begin"
            if self.open:
                yield "pool_end"
            if self.released_next():
                yield "pool_release"

    def released_next(self):
        return [pool for pool, users in self.users.items() if users and pool not in self.open]

    def any_stream(self):
        return self.draw(st.integers(0, self.streams - 1))

    def step(self):
        action = self.draw(st.sampled_from(list(self.actions())))
        self.stream.append(Request(action, *getattr(self, action)()))

    def alloc(self):
        self.key += 1
        self.alive.append(self.key)
        return self.key, self.draw(self.sizes), self.any_stream()

    def free(self):
        return self.alive.pop(self.draw(st.integers(0, len(self.alive) - 1))), 0, 0

    def record_stream(self):
        return self.draw(st.sampled_from(self.alive)), 0, self.any_stream()

    def synchronize(self):
        return 0, 0, self.draw(st.sampled_from([ALL_STREAMS, *range(self.streams)]))

    def pool_begin(self):
        again = [pool for pool in self.released_next() if self.draw(st.booleans())]
        pool = again[0] if again else self.next_pool
        self.next_pool += not again
        self.users[pool] = self.users.get(pool, 0) + 1
        self.open.append(pool)
        return pool, 0, 0

    def pool_end(self):
        return self.open.pop(self.draw(st.integers(0, len(self.open) - 1))), 0, 0

    def pool_release(self):
        pool = self.draw(st.sampled_from(self.released_next()))
        self.users[pool] -= 1
        return pool, 0, 0

    def empty_cache(self):
        # A pool may only be emptied by its name where no capture is going on, and it must exist.
        return self.draw(st.sampled_from([0] if self.open else [0, *self.users])), 0, 0


@st.composite
def programs_of_streams(draw, max_events=60, streams=3, allocation_sizes=sizes, pools=True):
    """Requests of every kind, in any order that a program could produce."""
    program = Program(draw, streams, allocation_sizes, pools)
    for _ in range(draw(st.integers(0, max_events))):
        program.step()
    return program.stream
