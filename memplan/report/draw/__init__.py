"""Bars, points and pictures."""
