"""Steps of an unmodified program inside one preallocated arena."""
