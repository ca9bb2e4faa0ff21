"""What memory a run takes: regions with their peaks, samples over time, or every allocation. ``memplan.profile``."""
