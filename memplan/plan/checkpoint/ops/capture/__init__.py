"""The joint graph of a compiled step as a problem of schedules."""
