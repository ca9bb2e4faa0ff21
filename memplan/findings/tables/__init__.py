"""The rules by family; ``memplan.findings.rules`` is the table of all."""
