"""Reports of ``memplan sweep``."""
