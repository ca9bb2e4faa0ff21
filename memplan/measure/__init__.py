"""Compose the stages: target, options and profile become an estimate."""
