"""Programs run as they are."""
