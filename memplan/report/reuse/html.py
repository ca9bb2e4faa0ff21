"""A placement as one page: verdict, comparison and picture, whose largest buffers say who they are."""

from memplan.plan.reuse.answer_records import ReuseAnswer
from memplan.report.draw.layout import MAX_WIDTH
from memplan.report.html.page import page, text
from memplan.report.reuse import svg as reuse_svg
from memplan.report.reuse.text import buffers_in_words, compared, verdict_lines
from memplan.units import format_bytes


def render(answer: ReuseAnswer) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    verdict, *remarks = (line.plain for line in verdict_lines(answer, MAX_WIDTH))
    around = answer.surroundings
    facts = [*([around.device, around.step] if around else []), buffers_in_words(answer)]
    return page(
        f"{answer.target}: one arena",
        [
            f"<p>{text(' · '.join(filter(None, facts)))}</p>",
            f'<p class="verdict">{text(verdict)}</p>',
            *(f"<p>{text(remark)}</p>" for remark in remarks),
            reuse_svg.render(answer).rstrip("\n"),
            "<table><tbody>",
            *(_row(name, size) for name, size in compared(answer)),
            "</tbody></table>",
            f"<footer>memplan {text(answer.memplan_version)}</footer>",
        ],
        picture_style=reuse_svg.STYLE,
    )


def _row(name: str, size: int) -> str:
    return f'<tr><td>{text(name)}</td><td class="figure">{format_bytes(size)}</td></tr>'
