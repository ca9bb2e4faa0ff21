"""Reports of ``memplan snapshot``."""
