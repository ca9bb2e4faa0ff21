"""Reports of ``memplan simulate``."""
