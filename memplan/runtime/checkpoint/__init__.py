"""Activation checkpointing as a plan says: the plan's own records and file, and the code that puts it into force."""
