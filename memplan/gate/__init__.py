"""Judges the jobs of a project: project file ──► run, cached ──► compared with the baseline ──► findings."""
