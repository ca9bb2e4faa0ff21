"""The figures of ``benchmarks/runtime.py``, one module for each part of ``memplan.runtime``."""
