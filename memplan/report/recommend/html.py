"""The HTML report of ``memplan recommend``: the front as a picture, the ranking and the single changes as tables."""

from collections.abc import Iterator, Mapping

from memplan.plan.recommend.records import Ending, Evaluated, Recommendation
from memplan.report.draw.layout import signed_percent
from memplan.report.draw.scatter_svg import STYLE
from memplan.report.estimate.job import job_items
from memplan.report.html import page as html
from memplan.report.recommend.json import DOCUMENT
from memplan.report.recommend.svg import render as render_svg
from memplan.report.recommend.text import MARKS, NOT_ALLOWED, ending_words, rate, remarks, state
from memplan.units import format_bytes

_KINDS: Mapping[Ending, str] = {
    "best": "fits", "best_of_proved": "fits", "nothing_fits": "oom", "not_found": "tight"
}  # fmt: skip


def render(answer: Recommendation) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    frame = html.PageFrame(
        kind="recommend",
        title=f"{answer.target} on {answer.gpus} x {answer.gpu}",
        versions={"memplan": answer.memplan_version, "torch": answer.torch_version},
    )
    return html.page(frame, _body(answer), DOCUMENT.plain(answer), picture_style=STYLE)


def _body(answer: Recommendation) -> Iterator[str]:
    ending, best = answer.proof.ending, answer.best
    word, _, rest = ending_words(answer).partition("  ")
    figures = f"{format_bytes(best.device_bytes)} · {rate(best)}" if best else rest
    yield html.verdict(f"{MARKS[ending][0]} {word}", figures, _KINDS[ending])
    if best:
        yield f"<p>{html.text(best.candidate.words)}</p>"
        yield html.remark(rest) if rest else ""
    yield html.remark("; ".join(job_items(answer)))
    yield from map(html.remark, remarks(answer))
    if len(answer.pareto) > 1:
        yield html.section("Throughput against memory", render_svg(answer, alone=False))
    heads = ("peak", f"{answer.counted}/s", "cost")
    yield html.section("Ranking", *html.table(("configuration",), heads, map(_row, answer.rows)))
    yield html.section(
        "One change alone",
        *html.table(("change", "fits"), ("saves", "time"), _what_ifs(answer)),
        html.remark(NOT_ALLOWED) if any(not each.allowed for each in answer.what_ifs) else "",
    )
    if answer.rejected:
        rows = ((each.candidate.words, each.reason) for each in answer.rejected)
        yield f"<details><summary>{len(answer.rejected)} not taken, and why</summary>"
        yield from html.table(("configuration", "why"), (), rows)
        yield "</details>"
    yield from html.sentences("Not modelled", answer.not_modelled)
    yield from html.sentences("Assumptions", answer.assumptions)


def _row(row: Evaluated) -> tuple[str, ...]:
    return row.candidate.words, format_bytes(row.device_bytes), f"{row.samples_per_second:.2f}", f"{row.cost:.3f}"


def _what_ifs(answer: Recommendation) -> Iterator[tuple[str, ...]]:
    for each in answer.what_ifs:
        if each.saved_bytes is None:
            yield each.candidate.words, each.reason, "", ""
        else:
            time = signed_percent(each.extra_time or 0.0)
            yield each.candidate.words, state(each), format_bytes(each.saved_bytes), time
