"""The largest batch that fits, and how a wanted one is put together."""
