"""Traces of a few blocks continued to many: what a further block inserts is repeated."""
