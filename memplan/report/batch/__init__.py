"""Reports of ``memplan batch``."""
