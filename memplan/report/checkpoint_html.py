"""A checkpoint plan as one page: verdict, memory-time curve and blocks. It loads nothing and runs nothing."""

from collections.abc import Iterator
from html import escape

from memplan.plan.checkpoint.answer_records import BlockRow, CheckpointAnswer
from memplan.report import checkpoint_svg
from memplan.report.checkpoint import remarks, run_action, run_name, runs, saved_words, segment_words, verdict
from memplan.report.layout import clean
from memplan.units import format_bytes

STYLE = """
  :root { color-scheme: light dark }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  svg { width: 100%; height: auto }
  .blocks { overflow-x: auto }
  table { border-collapse: collapse; width: 100% }
  th, td { padding: .3rem .6rem; border-bottom: 1px solid #8884; text-align: left; vertical-align: top }
  .figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
  p, .saved, footer { color: #57606a; margin: .2rem 0 }
  p.verdict { color: inherit; font-size: 1.2rem; font-weight: 600 }
  @media (prefers-color-scheme: dark) { p, .saved, footer { color: #9198a1 } }
"""


def render(answer: CheckpointAnswer) -> str:
    """Write an answer as an HTML document that needs nothing else."""
    title = _text(f"{answer.target} on {answer.device}: checkpoint plan")
    facts = [answer.device_title, answer.step, f"budget {format_bytes(answer.budget_bytes)}"]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            f'<head><meta charset="utf-8"><title>{title}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head>",
            f"<body><h1>{title}</h1>",
            f"<p>{_text(' · '.join(facts))}</p>",
            f'<p class="verdict">{_text(verdict(answer))}</p>',
            *(f"<p>{_text(remark)}</p>" for remark in remarks(answer)),
            checkpoint_svg.render(answer).rstrip("\n"),
            '<div class="blocks"><table><thead><tr><th>blocks</th><th>do</th><th class="figure">keep</th>',
            '<th class="figure">before</th><th class="figure">ms again</th></tr></thead><tbody>',
            *(_row(rows) for rows in runs(answer.blocks)),
            "</tbody></table></div>",
            *(f"<p>{_text(words)}</p>" for words in segment_words(answer)),
            *_footer(answer),
            "</body></html>\n",
        ]
    )


def _row(rows: list[BlockRow]) -> str:
    kept, before = sum(row.kept_bytes for row in rows), sum(row.kept_before_bytes for row in rows)
    saved = f'<div class="saved">{_text(saved_words(rows[0]))}</div>' if rows[0].saved else ""
    figures = (format_bytes(kept), format_bytes(before), f"{1e3 * sum(row.seconds for row in rows):.1f}")
    cells = "".join(f'<td class="figure">{figure}</td>' for figure in figures)
    return f"<tr><td>{_text(run_name(rows))}</td><td>{_text(run_action(rows[0]))}{saved}</td>{cells}</tr>"


def _footer(answer: CheckpointAnswer) -> Iterator[str]:
    for name, sentences in (("Assumptions", answer.assumptions), ("Not modelled", answer.not_modelled)):
        if sentences:
            items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
            yield f"<details><summary>{name}</summary><ul>{items}</ul></details>"
    yield f"<footer>memplan {_text(answer.memplan_version)}, torch {_text(answer.torch_version)}</footer>"


def _text(text: str) -> str:
    return escape(clean(text))
