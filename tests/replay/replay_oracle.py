"""A slow allocator to compare with: it keeps segments and live intervals, and derives every free block from them anew.

Written from the rules in prose; shares neither code nor representation with memplan.replay.
"""

from itertools import pairwise

MB = 1024 * 1024


def power_of_two_steps(nbytes, divisions):
    """All multiples of (power of two / divisions) between neighbouring powers of two, tried one by one."""
    low = 1
    while low * 2 <= nbytes:
        low *= 2
    return next(low + k * low // divisions for k in range(divisions + 1) if low + k * low // divisions >= nbytes)


class NaiveAllocator:
    def __init__(
        self, *, limit=None, allowed=None, max_split=None, rounding=20 * MB, gc=0.0, large=20 * MB, divisions=0
    ):
        self.limit, self.allowed, self.max_split, self.rounding = limit, allowed, max_split, rounding
        self.gc, self.large, self.divisions = gc, large, divisions
        self.segments = []  # dicts: address, size, stream, small, idle (large searches when it last became empty)
        self.live = []  # dicts: address, size, requested, segment
        self.searches = self.retries = self.end = 0

    # -- sizes --
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

    # -- totals --
    def reserved(self):
        return sum(s["size"] for s in self.segments)

    def allocated(self):
        return sum(b["size"] for b in self.live)

    def requested(self):
        return sum(b["requested"] for b in self.live)

    # -- free space --
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
        size = self.rounded(nbytes)
        small = size <= MB
        self.searches += not small
        best = None
        for segment in self.segments:
            if (segment["stream"], segment["small"]) == (stream, small):
                for address, hole in self.holes(segment):
                    if hole >= size and (best is None or (hole, address) < best[:2]):
                        best = (hole, address, segment)
        if best and self.max_split and size < self.max_split <= best[0]:
            best = None
        if best and self.max_split and size >= self.max_split and best[0] >= size + self.rounding:
            best = None
        if best is None:
            segment = self.cuda_malloc(size, stream, small)
            if segment is None:
                return None
            best = (segment["size"], segment["address"], segment)
        hole, address, segment = best
        rest = hole - size
        split = rest >= 512 if small else (rest > MB and not (self.max_split and size >= self.max_split))
        block = {"address": address, "size": size if split else hole, "requested": nbytes, "segment": segment}
        self.live.append(block)
        return block

    def free(self, block):
        self.live = [b for b in self.live if b is not block]
        if self.empty(block["segment"]):
            block["segment"]["idle"] = self.searches

    # -- device --
    def cuda_malloc(self, size, stream, small):
        if self.gc and self.allowed:
            self.collect()
        wanted = self.segment_bytes(size)
        served = self.fits(wanted) or (self.max_split and self.drop_oversize(size, stream, small) and self.fits(wanted))
        if not served:
            self.retries += 1
            self.segments = [s for s in self.segments if not self.empty(s)]
            if not self.fits(wanted):
                return None
        segment = {"address": self.end, "size": wanted, "stream": stream, "small": small, "idle": None}
        self.end += wanted
        self.segments.append(segment)
        return segment

    def fits(self, wanted):
        bounds = [bound for bound in (self.limit, self.allowed) if bound is not None]
        return all(self.reserved() + wanted <= bound for bound in bounds)

    def drop(self, segment):
        self.segments = [s for s in self.segments if s is not segment]

    def drop_oversize(self, size, stream, small):
        key = max(size, self.max_split)
        mine = [s for s in self.segments if (s["stream"], s["small"]) == (stream, small) and self.empty(s)]
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
        idle = [s for s in self.segments if not s["small"] and self.empty(s)]
        gone = 0
        while idle and gone < target:
            mean = sum(self.searches - s["idle"] for s in idle) / len(idle)
            old = [s for s in idle if self.searches - s["idle"] >= mean]
            for segment in old:
                gone += segment["size"]
                self.drop(segment)
            idle = [s for s in idle if s not in old]

    def empty_cache(self):
        self.segments = [s for s in self.segments if not self.empty(s)]


class NaiveExpandable:
    """Expandable segments as sets of mapped units; one address space for each (stream, size class), never exhausted."""

    def __init__(self, *, space, limit=None, large=20 * MB):
        self.space, self.limit, self.large = space, limit, large
        self.mapped = {}  # (stream, small) -> set of unit indices
        self.bases = {}
        self.end = 0
        self.live = []
        self.retries = 0

    def unit(self, small):
        return 2 * MB if small else self.large

    def reserved(self):
        return sum(len(units) * self.unit(small) for (_, small), units in self.mapped.items())

    def allocated(self):
        return sum(b["size"] for b in self.live)

    def requested(self):
        return sum(b["requested"] for b in self.live)

    def base(self, pool):
        if pool not in self.bases:
            unit = self.unit(pool[1])
            self.bases[pool] = (self.end, -(-self.space // unit) * unit)
            self.end += self.bases[pool][1]
        return self.bases[pool][0]

    def stretches(self, pool):
        """Free mapped stretches and, marked, unmapped ones, in address order: (start, size, is_mapped)."""
        base, unit = self.base(pool), self.unit(pool[1])
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
        size = max(512, -(-nbytes // 512) * 512)
        pool = (stream, size <= MB)
        spaces = self.stretches(pool) if pool in self.bases else []
        free = sorted((s[1], s[0], i) for i, s in enumerate(spaces) if s and s[2])
        fitting = [f for f in free if f[0] >= size]
        if fitting:
            at = 0

            def reach(entry):
                after = spaces[entry[2] + 1] if entry[2] + 1 < len(spaces) else None
                return entry[0] + (after[1] if after and not after[2] else 0)

            while at + 1 < len(fitting) and reach(fitting[at + 1]) < reach(fitting[at]):
                at += 1
            return self.take(fitting[at][1], size, nbytes, pool)
        if not self.grow(pool, size):
            self.retries += 1
            self.empty_cache()
            if not self.grow(pool, size):
                return None
        return self.take(self.grown, size, nbytes, pool)

    def take(self, address, size, nbytes, pool):
        block = {"address": address, "size": size, "requested": nbytes, "pool": pool}
        self.live.append(block)
        return block

    def grow(self, pool, size):
        """Map at the lowest place with room; sets ``grown``. False when the device is full; what was mapped stays."""
        unit = self.unit(pool[1])
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
        self.grown = spaces[first][0]
        have = 0
        for start, length, is_mapped in spaces[first:]:
            if not is_mapped:
                needed = -(-min(length, size - have) // unit)
                if self.limit is not None and self.reserved() + needed * unit > self.limit:
                    return False
                begin = (start - self.base(pool)) // unit
                self.mapped[pool] |= set(range(begin, begin + needed))
                have += needed * unit
            else:
                have += length
            if have >= size:
                return True
        raise AssertionError("address space exhausted")

    def free(self, block):
        self.live = [b for b in self.live if b is not block]

    def empty_cache(self):
        for pool, units in list(self.mapped.items()):
            if not units:
                continue
            base, unit = self.base(pool), self.unit(pool[1])
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
