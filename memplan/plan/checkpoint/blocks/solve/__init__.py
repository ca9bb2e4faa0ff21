"""Solvers of the block-level problem."""
