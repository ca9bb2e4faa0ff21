"""Reports of ``memplan monitor``."""
