"""Solvers for joint graphs."""
