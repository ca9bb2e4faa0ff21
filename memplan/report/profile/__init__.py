"""Reports of a recording of ``memplan.profile``."""
