"""The HTML report of ``memplan recommend``: the front as a picture, the ranking and the single changes as tables."""

from collections.abc import Iterator

from memplan.plan.recommend.records import Evaluated, Recommendation
from memplan.report.draw.layout import signed_percent
from memplan.report.draw.scatter_svg import STYLE
from memplan.report.estimate.job import job_items
from memplan.report.html.page import page, table, text
from memplan.report.recommend.svg import render as render_svg
from memplan.report.recommend.text import NOT_ALLOWED, ending_words, rate, remarks, state
from memplan.units import format_bytes


def render(answer: Recommendation) -> str:
    """One page that loads nothing and runs nothing."""
    return page(f"{answer.target} on {answer.gpus} x {answer.gpu}", _body(answer), picture_style=STYLE)


def _body(answer: Recommendation) -> Iterator[str]:
    best = answer.best
    figures = f"{best.candidate.words}: {format_bytes(best.device_bytes)}, {rate(best)}" if best else ""
    words = ": ".join(filter(None, [" ".join(ending_words(answer).split()), figures]))
    yield f'<p class="verdict">{text(words)}</p>'
    for remark in remarks(answer):
        yield f"<p>{text(remark)}</p>"
    if len(answer.pareto) > 1:
        yield render_svg(answer)
    yield '<div class="blocks">'
    yield from table(("configuration",), ("peak", f"{answer.counted}/s", "cost"), (_row(each) for each in answer.rows))
    yield from table(("one change alone", "fits"), ("saves", "time"), _what_ifs(answer))
    if any(not each.allowed for each in answer.what_ifs):
        yield f"<p>{text(NOT_ALLOWED)}</p>"
    if answer.rejected:
        yield f"<details><summary>{len(answer.rejected)} not taken, and why</summary>"
        yield from table(
            ("configuration", "why"), (), ((each.candidate.words, each.reason) for each in answer.rejected)
        )
        yield "</details>"
    yield "</div>"
    yield f"<p>{text('; '.join(job_items(answer)))}</p>"
    yield f"<footer>memplan {text(answer.memplan_version)}, torch {text(answer.torch_version)}</footer>"


def _row(row: Evaluated) -> tuple[str, ...]:
    return row.candidate.words, format_bytes(row.device_bytes), f"{row.samples_per_second:.2f}", f"{row.cost:.3f}"


def _what_ifs(answer: Recommendation) -> Iterator[tuple[str, ...]]:
    for each in answer.what_ifs:
        if each.saved_bytes is None:
            yield each.candidate.words, each.reason, "", ""
        else:
            time = signed_percent(each.extra_time or 0.0)
            yield each.candidate.words, state(each), format_bytes(each.saved_bytes), time
