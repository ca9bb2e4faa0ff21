"""Allocator policies side by side on the same steps.

    lengths ──► traces ──► sizes ──► family ──┐
    (draws)     (child)    (exact)   (streams)├─► workload ──► play, once per policy ──► recommend
    snapshot ──► history ─────────────────────┘                 policies · costs

``simulate`` in ``compose`` is the library call; ``records`` holds everything that travels.
"""
