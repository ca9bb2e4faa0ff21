"""Published peaks of runs on several GPUs: which can be traced, which cannot, and what others say of them."""

from published.sharded.records import Peaks, Row

__all__ = ["Peaks", "Row"]
