"""A placement as one page: verdict, comparison and picture, whose largest buffers say who they are."""

from collections.abc import Iterator

from memplan.plan.reuse.answer_records import ReuseAnswer
from memplan.report.draw.layout import MAX_WIDTH
from memplan.report.endings import KINDS
from memplan.report.html import page as html
from memplan.report.reuse import svg as reuse_svg
from memplan.report.reuse.json import DOCUMENT
from memplan.report.reuse.text import buffers_in_words, compared, verdict_lines
from memplan.units import format_bytes


def render(answer: ReuseAnswer) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    frame = html.PageFrame(
        kind="reuse plan",
        title=f"{answer.target}: one arena",
        versions={"memplan": answer.memplan_version},
    )
    return html.page(frame, _body(answer), DOCUMENT.plain(answer), picture_style=reuse_svg.STYLE)


def _body(answer: ReuseAnswer) -> Iterator[str]:
    said, *remarks = (line.plain for line in verdict_lines(answer, MAX_WIDTH))
    word, figures = said.split("  ", 1)
    yield html.verdict(word, figures, KINDS[answer.outcome])
    around = answer.surroundings
    facts = [*([around.device, around.step] if around else []), buffers_in_words(answer)]
    yield html.remark(" · ".join(filter(None, facts)))
    yield from map(html.remark, remarks)
    yield html.section("Offsets over time", reuse_svg.render(answer, alone=False))
    rows = ((name, format_bytes(size)) for name, size in compared(answer))
    yield html.section("Beside others", *html.table(("arena",), ("bytes",), rows))
    yield from html.sentences("Assumptions", around.assumptions if around else ())
