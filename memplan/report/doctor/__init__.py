"""The reports of ``memplan doctor``."""
