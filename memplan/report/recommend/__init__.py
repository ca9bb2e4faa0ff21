"""Reports of ``memplan recommend``."""
