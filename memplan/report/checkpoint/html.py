"""A checkpoint plan as one page: verdict, memory-time curve and blocks."""

from collections.abc import Iterator

from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer
from memplan.report.checkpoint import svg as checkpoint_svg
from memplan.report.checkpoint.json import DOCUMENT
from memplan.report.checkpoint.text import joint_words, remarks, run_action, run_name, runs, saved_words, verdict
from memplan.report.draw.scatter_svg import STYLE
from memplan.report.endings import KINDS
from memplan.report.html import page as html
from memplan.units import format_bytes


def render(answer: CheckpointAnswer) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    frame = html.PageFrame(
        kind="checkpoint plan",
        title=f"{answer.target} on {answer.device}",
        versions={"memplan": answer.memplan_version, "torch": answer.torch_version},
    )
    return html.page(frame, _body(answer), DOCUMENT.plain(answer), picture_style=STYLE)


def _body(answer: CheckpointAnswer) -> Iterator[str]:
    word, figures = verdict(answer).split("  ", 1)
    yield html.verdict(word, " · ".join(figures.split("  ")), KINDS[answer.outcome])
    yield html.remark(" · ".join([answer.device_title, answer.step, f"budget {format_bytes(answer.budget_bytes)}"]))
    yield from map(html.remark, remarks(answer))
    yield html.section("Time against memory", checkpoint_svg.render(answer, alone=False))
    if answer.blocks:
        heads = ("keep", "before", "ms again")
        rows = html.table(("blocks", "do"), heads, map(_row, runs(answer.blocks)))
        yield html.section("What each block does", *rows, *map(html.remark, joint_words(answer)))
    said = (("Assumptions", answer.assumptions), ("Not modelled", answer.not_modelled))
    yield html.section("What this rests on", *(line for name, words in said for line in html.sentences(name, words)))


def _row(rows: list[BlockRow]) -> tuple[str, ...]:
    kept, before = sum(row.kept_bytes for row in rows), sum(row.kept_before_bytes for row in rows)
    does = run_action(rows[0]) + (f" {saved_words(rows[0])}" if rows[0].saved else "")
    milliseconds = f"{1e3 * sum(row.seconds for row in rows):.1f}"
    return run_name(rows), does, format_bytes(kept), format_bytes(before), milliseconds
