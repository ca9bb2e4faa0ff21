"""What the allocator makes of it."""
