"""What forges and CI systems read of findings."""

FORMATS = {
    "github": "memplan.findings.github",
    "gitlab": "memplan.findings.gitlab",
    "sarif": "memplan.findings.sarif",
}
"""Format → module whose ``render`` makes one text of ``Findings``, with files from the repository's root. A further
format is a file, and a line here: every command that reports findings then has it."""
