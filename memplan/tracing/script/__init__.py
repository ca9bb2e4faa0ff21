"""A training program run as it is, as ``__main__`` in the fake world, until its step repeats."""
