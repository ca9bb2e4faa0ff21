"""A memory history in the formats of other people's viewers."""
