"""Reports of ``memplan numa``."""
