"""Loops of libraries."""
