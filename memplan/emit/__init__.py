"""A setup as files of the frameworks that run it: one module per framework, each with ``render(setup)``."""
