"""Reports of ``memplan checkpoint-plan``."""
