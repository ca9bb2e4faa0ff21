"""What `memplan.runtime` does on a card, each module one theme: see `benchmarks/gpu/runtime.py`."""
