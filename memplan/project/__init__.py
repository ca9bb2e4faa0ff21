"""What a repository says of its jobs: ``[tool.memplan]`` in pyproject.toml, or memplan.toml. Torch-free."""
