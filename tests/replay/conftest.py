"""Hypothesis as the replay tests need it: their oracles are slow on purpose."""

from hypothesis import settings

settings.register_profile("replay", deadline=None, max_examples=60)
