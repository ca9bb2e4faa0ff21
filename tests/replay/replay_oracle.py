"""Slow allocators to compare with: they keep segments and live intervals, and derive every free block from them anew.

Written from the rules in prose and from PyTorch's C++; they share neither code nor representation with memplan.replay.
"""

from collections import Counter
from itertools import pairwise

MB = 1024 * 1024
EVERY_STREAM = -1
FIRST_ADDRESS = 0x7F0000000000


def power_of_two_steps(nbytes, divisions):
    """All multiples of (power of two / divisions) between neighbouring powers of two, tried one by one."""
    low = 1
    while low * 2 <= nbytes:
        low *= 2
    return next(low + k * low // divisions for k in range(divisions + 1) if low + k * low // divisions >= nbytes)


class Streams:
    """Streams, their events, and private pools, as DeviceCachingAllocator keeps them.

    Time is a count of work: a stream's clock ticks with each request that names it, an event is a reading of that
    clock, and it is complete once a synchronization has seen it.
    """

    def __init__(self):
        self.live = []  # dicts: address, size, requested, stream, owner, uses, capture_uses, events, alive
        self.clock, self.seen = Counter(), Counter()
        self.cuda_events = {}  # stream -> list of (reading, block)
        self.deferred_blocks = []
        self.captures_underway = []
        self.use_counts = {}
        self.retries = 0

    # -- what a subclass knows --
    def reclaimed(self, block):
        """A block became free."""

    def release_blocks(self, owner):
        """Give back what a pool has cached."""
        raise NotImplementedError

    def owns_memory(self, owner):
        raise NotImplementedError

    # -- totals --
    def allocated(self):
        return sum(b["size"] for b in self.live if b["alive"])

    def active(self):
        return sum(b["size"] for b in self.live)

    def requested(self):
        return sum(b["requested"] for b in self.live)

    # -- the program's requests --
    def owner(self):
        return self.captures_underway[-1] if self.captures_underway else 0

    def new_block(self, address, size, nbytes, stream, **more):
        block = {"address": address, "size": size, "requested": nbytes, "stream": stream, "owner": self.owner()}
        block |= {"uses": set(), "capture_uses": set(), "events": 0, "alive": True} | more
        self.live.append(block)
        return block

    def begin_malloc(self, stream):
        self.clock[stream] += 1
        if not self.captures_underway:
            self.process_events()

    def free(self, block):
        block["alive"] = False
        if not block["uses"]:
            self.free_block(block)
        elif self.captures_underway:
            self.deferred_blocks.append(block)
        else:
            self.insert_events(block)

    def record_stream(self, block, stream):
        self.clock[stream] += 1
        if stream == block["stream"]:
            return
        block["uses"].add(stream)
        if self.captures_underway:
            block["capture_uses"].add(stream)

    def synchronize(self, stream):
        for each in list(self.clock) if stream == EVERY_STREAM else [stream]:
            self.seen[each] = self.clock[each]

    def begin_pool(self, owner):
        self.use_counts[owner] = self.use_counts.get(owner, 0) + 1
        self.captures_underway.append(owner)

    def end_pool(self, owner):
        self.captures_underway.remove(owner)

    def release_pool(self, owner):
        self.use_counts[owner] -= 1

    def empty_cache(self, owner=0):
        if owner == 0 and not self.captures_underway:
            self.synchronize_and_free_events(None)
            self.release_blocks(0)
        for pool in [pool for pool, count in self.use_counts.items() if count == 0]:
            if owner not in (0, pool):
                continue
            if owner:
                self.synchronize_and_free_events(pool)
            self.release_blocks(pool)
            if not self.owns_memory(pool):
                del self.use_counts[pool]

    # -- events --
    def free_block(self, block):
        self.live = [b for b in self.live if b is not block]
        self.reclaimed(block)

    def insert_events(self, block):
        streams, block["uses"] = block["uses"], set()
        for stream in streams:
            block["events"] += 1
            self.cuda_events.setdefault(stream, []).append((self.clock[stream], block))

    def insert_events_deferred_until_no_capture(self):
        for block in self.deferred_blocks:
            block["uses"] -= block["capture_uses"]
            block["capture_uses"] = set()
            self.insert_events(block)
            if block["events"] == 0:
                self.free_block(block)
        self.deferred_blocks = []

    def one_event_less(self, block):
        block["events"] -= 1
        if block["events"] == 0:
            self.free_block(block)

    def process_events(self):
        self.insert_events_deferred_until_no_capture()
        for stream, queue in self.cuda_events.items():
            while queue and queue[0][0] <= self.seen[stream]:
                self.one_event_less(queue.pop(0)[1])

    def synchronize_and_free_events(self, pool):
        assert not self.captures_underway
        self.insert_events_deferred_until_no_capture()
        for stream, queue in self.cuda_events.items():
            mine = [entry for entry in queue if pool is None or entry[1]["owner"] == pool]
            self.cuda_events[stream] = [entry for entry in queue if entry not in mine]
            for _, block in mine:
                self.one_event_less(block)


class Device(Streams):
    """The device's memory, the rounding of sizes, and the chain of attempts to get more memory."""

    def __init__(
        self, *, limit=None, allowed=None, reject_above=None, max_split=None, rounding=20 * MB, gc=0.0, large=20 * MB,
        divisions=0,
    ):  # fmt: skip
        super().__init__()
        self.limit, self.allowed, self.reject_above = limit, allowed, reject_above
        self.max_split, self.rounding, self.gc, self.large, self.divisions = max_split, rounding, gc, large, divisions

    def rounded(self, nbytes):
        if self.divisions > 1 and nbytes > 512 * self.divisions:
            return power_of_two_steps(nbytes, self.divisions)
        size = 512
        while size < nbytes:
            size += 512 * max(1, (nbytes - size) // 512)
        return size

    def segment_bytes(self, size):
        if size <= MB:
            return 2 * MB
        if size < 10 * MB:
            return self.large
        return (size + 2 * MB - 1) // (2 * MB) * 2 * MB

    def fits(self, more):
        return self.limit is None or self.reserved() + more <= self.limit

    def suits(self, hole, size):
        if not self.max_split:
            return True
        return hole < self.max_split if size < self.max_split else hole < size + self.rounding

    def alloc_block(self, size, pool):
        """("block", …), ("full", None) or ("rejected", None)."""
        wanted = self.reserved() + self.segment_bytes(size)
        if self.allowed is not None and wanted > self.allowed:
            return "full", None
        if self.reject_above is not None and wanted > self.reject_above:
            return "rejected", None
        found = self.cuda_malloc(size, pool)
        return ("full", None) if found is None else ("block", found)

    def new_memory(self, size, pool):
        if self.gc and self.allowed:
            self.collect()
        outcome, found = self.alloc_block(size, pool)
        if outcome == "rejected":
            return None
        if outcome == "full" and self.max_split and self.drop_oversize(size, pool):
            outcome, found = self.alloc_block(size, pool)
        if outcome != "block" and not self.captures_underway:
            self.empty_cache()
            self.retries += 1
            outcome, found = self.alloc_block(size, pool)
        return found


class NaiveAllocator(Device):
    def __init__(self, **options):
        super().__init__(**options)
        self.segments = []  # dicts: address, size, pool (owner, stream, small), idle (searches when it became empty)
        self.searches, self.end = 0, FIRST_ADDRESS

    def reserved(self):
        return sum(s["size"] for s in self.segments)

    def holes(self, segment):
        cursor, found = segment["address"], []
        for block in sorted((b for b in self.live if b["segment"] is segment), key=lambda b: b["address"]):
            if block["address"] > cursor:
                found.append((cursor, block["address"] - cursor))
            cursor = block["address"] + block["size"]
        if cursor < segment["address"] + segment["size"]:
            found.append((cursor, segment["address"] + segment["size"] - cursor))
        return found

    def empty(self, segment):
        return all(b["segment"] is not segment for b in self.live)

    def malloc(self, nbytes, stream):
        """The block, or None when out of memory."""
        self.begin_malloc(stream)
        size = self.rounded(nbytes)
        pool = (self.owner(), stream, size <= MB)
        self.searches += pool[0] == 0 and not pool[2]
        best = None
        for segment in self.segments:
            if segment["pool"] == pool:
                for address, hole in self.holes(segment):
                    if hole >= size and (best is None or (hole, address) < best[:2]):
                        best = (hole, address, segment)
        if best and not self.suits(best[0], size):
            best = None
        if best is None:
            segment = self.new_memory(size, pool)
            if segment is None:
                return None
            best = (segment["size"], segment["address"], segment)
        hole, address, segment = best
        rest = hole - size
        split = rest >= 512 if pool[2] else (rest > MB and not (self.max_split and size >= self.max_split))
        return self.new_block(address, size if split else hole, nbytes, stream, segment=segment)

    def reclaimed(self, block):
        if self.empty(block["segment"]):
            block["segment"]["idle"] = self.searches

    def cuda_malloc(self, size, pool):
        wanted = self.segment_bytes(size)
        if not self.fits(wanted):
            return None
        segment = {"address": self.end, "size": wanted, "pool": pool, "idle": None}
        self.end += wanted
        self.segments.append(segment)
        return segment

    def drop(self, segment):
        self.segments = [s for s in self.segments if s is not segment]

    def drop_oversize(self, size, pool):
        key = max(size, self.max_split)
        mine = [s for s in self.segments if s["pool"] == pool and self.empty(s)]
        mine = sorted((s for s in mine if s["size"] >= self.max_split), key=lambda s: (s["size"], s["address"]))
        enough = [s for s in mine if s["size"] >= key]
        if enough:
            self.drop(enough[0])
            return True
        released = 0
        while mine and released < key:
            segment = mine.pop()
            released += segment["size"]
            self.drop(segment)
        return released >= key  # short of that the device is not asked again; what was released stays so

    def collect(self):
        target = self.reserved() - int(self.gc * self.allowed)
        if target <= 0:
            return
        idle = [s for s in self.segments if s["pool"][0] == 0 and not s["pool"][2] and self.empty(s)]
        gone = 0
        while idle and gone < target:
            mean = sum(self.searches - s["idle"] for s in idle) / len(idle)
            old = [s for s in idle if self.searches - s["idle"] >= mean]
            for segment in old:
                gone += segment["size"]
                self.drop(segment)
            idle = [s for s in idle if s not in old]

    def release_blocks(self, owner):
        self.segments = [s for s in self.segments if s["pool"][0] != owner or not self.empty(s)]

    def owns_memory(self, owner):
        return any(s["pool"][0] == owner for s in self.segments)


class NaiveExpandable(Device):
    """Expandable segments as sets of mapped units; one address space for each pool, never exhausted."""

    def __init__(self, *, space, **options):
        super().__init__(**options)
        self.space = space
        self.mapped = {}  # (owner, stream, small) -> set of unit indices
        self.bases = {}
        self.end = FIRST_ADDRESS

    def unit(self, small):
        return 2 * MB if small else self.large

    def reserved(self):
        return sum(len(units) * self.unit(small) for (_, _, small), units in self.mapped.items())

    def base(self, pool):
        if pool not in self.bases:
            unit = self.unit(pool[2])
            self.bases[pool] = (self.end, -(-self.space // unit) * unit)
            self.end += self.bases[pool][1]
        return self.bases[pool][0]

    def stretches(self, pool):
        """Free mapped stretches and, marked, unmapped ones, in address order: (start, size, is_mapped)."""
        base, unit = self.base(pool), self.unit(pool[2])
        units = self.mapped.setdefault(pool, set())
        space = base + self.bases[pool][1]
        cuts = {base, space}
        for u in units:
            cuts |= {base + u * unit, base + (u + 1) * unit}
        mine = [(b["address"], b["address"] + b["size"]) for b in self.live if b["pool"] == pool]
        for start, end in mine:
            cuts |= {start, end}
        edges, found = sorted(cuts), []
        for start, end in pairwise(edges):
            if any(a <= start < z for a, z in mine):
                found.append(None)
                continue
            kind = (start - base) // unit in units
            if found and found[-1] and found[-1][2] == kind:
                found[-1] = (found[-1][0], found[-1][1] + end - start, kind)
            else:
                found.append((start, end - start, kind))
        return found

    def malloc(self, nbytes, stream):
        self.begin_malloc(stream)
        size = self.rounded(nbytes)
        pool = (self.owner(), stream, size <= MB)
        spaces = self.stretches(pool) if pool in self.bases else []
        free = sorted((s[1], s[0], i) for i, s in enumerate(spaces) if s and s[2])
        fitting = [f for f in free if f[0] >= size]
        address = None
        if fitting:
            at = 0

            def reach(entry):
                after = spaces[entry[2] + 1] if entry[2] + 1 < len(spaces) else None
                return entry[0] + (after[1] if after and not after[2] else 0)

            while at + 1 < len(fitting) and reach(fitting[at + 1]) < reach(fitting[at]):
                at += 1
            if self.suits(fitting[at][0], size):
                address = fitting[at][1]
        if address is None:
            address = self.new_memory(size, pool)
            if address is None:
                return None
        hole = next(s[1] for s in self.stretches(pool) if s and s[0] == address)
        return self.new_block(address, size if hole - size >= 512 else hole, nbytes, stream, pool=pool)

    def cuda_malloc(self, size, pool):
        """Map at the lowest place with room: its address. None when the device is full; what was mapped stays."""
        unit = self.unit(pool[2])
        spaces = self.stretches(pool)
        for index, space in enumerate(spaces):
            if not space or space[2]:
                continue
            first = index - 1 if index and spaces[index - 1] else index
            room, last = 0, first
            while last < len(spaces) and spaces[last] and room < size:
                room += spaces[last][1]
                last += 1
            if room >= size:
                break
        have = 0
        for start, length, is_mapped in spaces[first:]:
            if not is_mapped:
                needed = -(-min(length, size - have) // unit)
                if not self.fits(needed * unit):
                    return None
                begin = (start - self.base(pool)) // unit
                self.mapped[pool] |= set(range(begin, begin + needed))
                have += needed * unit
            else:
                have += length
            if have >= size:
                return spaces[first][0]
        raise AssertionError("address space exhausted")

    def drop_oversize(self, size, pool):
        return False

    def collect(self):
        pass

    def release_blocks(self, owner):
        for pool, units in list(self.mapped.items()):
            if not units or pool[0] != owner:
                continue
            base, unit = self.base(pool), self.unit(pool[2])
            used = {
                u
                for b in self.live
                if b["pool"] == pool
                for u in range((b["address"] - base) // unit, (b["address"] + b["size"] - base - 1) // unit + 1)
            }
            if units and not used:
                # A space that loses its last unit is given up; the next one lies elsewhere.
                del self.bases[pool]
            self.mapped[pool] = units & used

    def owns_memory(self, owner):
        return any(pool[0] == owner for pool in self.bases)


class NaiveHost(Streams):
    """Pinned memory: one list of freed blocks in the order of their return, one list of events for all streams."""

    def __init__(self, *, limit=None, round_up_to=None, keep_up_to=None, reserve=0):
        super().__init__()
        self.limit, self.round_up_to, self.keep_up_to, self.reserve = limit, round_up_to, keep_up_to, reserve
        self.returned, self.events, self.pinned, self.reserve_used = [], [], [], None

    def reserved(self):
        return sum(self.pinned)

    def bucket(self, size):
        exponent = 0
        while 2**exponent < size:
            exponent += 1
        return exponent

    def malloc(self, nbytes, stream):
        self.process_events()
        small = all(bound is None or nbytes <= bound for bound in (self.round_up_to, self.keep_up_to))
        size = 2 ** self.bucket(nbytes) if small else nbytes
        for block in reversed(self.returned):
            if self.bucket(block["size"]) == self.bucket(size) and block["size"] >= size:
                self.returned = [b for b in self.returned if b is not block]
                return self.new_block(0, block["size"], nbytes, None, inside=block["inside"])
        if self.reserve_used is None:
            if self.reserve and not self.pin(self.reserve):
                return None
            self.reserve_used = 0
        pages = (size + 4095) // 4096 * 4096
        if self.reserve_used + pages <= self.reserve:
            self.reserve_used += pages
            return self.new_block(0, size, nbytes, None, inside=True)
        return self.new_block(0, size, nbytes, None, inside=False) if self.pin(size) else None

    def pin(self, size):
        if self.limit is not None and self.reserved() + size > self.limit:
            return False
        self.pinned.append(size)
        return True

    def unpin(self, block):
        if not block["inside"]:
            self.pinned.remove(block["size"])

    def reclaimed(self, block):
        if self.keep_up_to is not None and block["size"] > self.keep_up_to:
            self.unpin(block)
        else:
            self.returned.append(block)

    def insert_events(self, block):
        streams, block["uses"] = block["uses"], set()
        block["events"] = len(streams)
        # In one go: which of them comes first does not matter, the block needs them all.
        self.events.append(({stream: self.clock[stream] for stream in streams}, block))

    def process_events(self):
        while self.events and all(reading <= self.seen[s] for s, reading in self.events[0][0].items()):
            block = self.events.pop(0)[1]
            self.free_block(block)

    def empty_cache(self, owner=0):
        self.process_events()
        for block in self.returned:
            self.unpin(block)
        self.returned = []
