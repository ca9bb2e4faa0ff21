"""Reports of ``memplan estimate``."""
