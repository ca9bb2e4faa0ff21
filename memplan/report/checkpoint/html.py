"""A checkpoint plan as one page: verdict, memory-time curve and blocks. It loads nothing and runs nothing."""

from collections.abc import Iterator

from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer
from memplan.report.checkpoint import svg as checkpoint_svg
from memplan.report.checkpoint.text import joint_words, remarks, run_action, run_name, runs, saved_words, verdict
from memplan.report.draw.scatter_svg import STYLE
from memplan.report.html.page import page, text
from memplan.units import format_bytes


def render(answer: CheckpointAnswer) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    facts = [answer.device_title, answer.step, f"budget {format_bytes(answer.budget_bytes)}"]
    return page(
        f"{answer.target} on {answer.device}: checkpoint plan",
        [
            f"<p>{text(' · '.join(facts))}</p>",
            f'<p class="verdict">{text(verdict(answer))}</p>',
            *(f"<p>{text(remark)}</p>" for remark in remarks(answer)),
            checkpoint_svg.render(answer).rstrip("\n"),
            '<div class="blocks"><table><thead><tr><th>blocks</th><th>do</th><th class="figure">keep</th>',
            '<th class="figure">before</th><th class="figure">ms again</th></tr></thead><tbody>',
            *(_row(rows) for rows in runs(answer.blocks)),
            "</tbody></table></div>",
            *(f"<p>{text(words)}</p>" for words in joint_words(answer)),
            *_footer(answer),
        ],
        picture_style=STYLE,
    )


def _row(rows: list[BlockRow]) -> str:
    kept, before = sum(row.kept_bytes for row in rows), sum(row.kept_before_bytes for row in rows)
    saved = f'<div class="saved">{text(saved_words(rows[0]))}</div>' if rows[0].saved else ""
    figures = (format_bytes(kept), format_bytes(before), f"{1e3 * sum(row.seconds for row in rows):.1f}")
    cells = "".join(f'<td class="figure">{figure}</td>' for figure in figures)
    return f"<tr><td>{text(run_name(rows))}</td><td>{text(run_action(rows[0]))}{saved}</td>{cells}</tr>"


def _footer(answer: CheckpointAnswer) -> Iterator[str]:
    for name, sentences in (("Assumptions", answer.assumptions), ("Not modelled", answer.not_modelled)):
        if sentences:
            items = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences)
            yield f"<details><summary>{name}</summary><ul>{items}</ul></details>"
    yield f"<footer>memplan {text(answer.memplan_version)}, torch {text(answer.torch_version)}</footer>"
