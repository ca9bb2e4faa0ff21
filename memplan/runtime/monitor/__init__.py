"""Is a run within its memory, and within what was predicted? Readings judged, logged, and explained at the end."""
