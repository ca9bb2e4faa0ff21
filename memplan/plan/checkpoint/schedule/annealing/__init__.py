"""Simulated annealing over schedules: it moves a computation, computes a value again, or computes it once less.

Each change works out what it would do to the sum of the cost and ``weight`` times the bytes above the budget, over all
positions, and does it or leaves it. Memory is only looked at where it would change, all positions of a stretch at once.
"""
