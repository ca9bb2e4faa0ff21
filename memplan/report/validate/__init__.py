"""Reports of ``memplan validate``."""
