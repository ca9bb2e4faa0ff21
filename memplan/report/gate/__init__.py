"""Reports of ``memplan gate`` and ``memplan diff``."""
