"""The reports of ``memplan graph``."""
