"""Drawn command lines and drawn files, run in this process: whatever comes in, what comes out is one of few things."""
