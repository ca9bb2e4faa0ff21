"""One offline page: an estimate on one or several GPUs, or all rows of a gate.

Python writes every figure that the page shows as text; the scripts read the JSON that the page carries, and draw.
"""
