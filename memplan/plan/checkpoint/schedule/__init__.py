"""Schedules of graphs that may compute values again: the problem, its solvers, an independent check."""
