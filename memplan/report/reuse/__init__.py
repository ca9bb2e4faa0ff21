"""Reports of ``memplan reuse-plan``."""
