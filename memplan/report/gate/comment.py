"""The gate's Markdown as short as the comment of a pull request must be."""

from memplan.gate.records import GateResult
from memplan.report.gate import markdown as gate_markdown


def render(result: GateResult) -> str:
    """Markdown below GitHub's limit for comments."""
    return gate_markdown.render(result, limit=gate_markdown.COMMENT_LIMIT)
