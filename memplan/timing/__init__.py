"""Seconds of a step: how long its ops, transfers and collectives take."""
