"""Reports of ``memplan audit``."""
