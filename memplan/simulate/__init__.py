"""Allocator policies side by side on the same stream of requests, over many steps."""
