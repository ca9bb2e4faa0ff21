"""Three changes of a schedule: move a computation, compute a value again, do so no longer.

Each one works out what it would do to the sum of the cost and ``weight`` times the bytes above the budget, over all
positions, and does it or leaves it. Memory is only looked at where it would change, all positions of a stretch at once.
"""
