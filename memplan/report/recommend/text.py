"""The text report of ``memplan recommend``: the best, the ranking, memory against throughput, single changes."""

import math
from collections.abc import Iterator, Mapping

from rich.text import Text

from memplan.job.spec import ScriptTarget
from memplan.plan.batch.records import CriticalBatch
from memplan.plan.recommend.records import (
    UNREACHED,
    Candidate,
    Ending,
    Evaluated,
    Recommendation,
    Remedy,
    SingleChange,
)
from memplan.report.draw.layout import (
    bounded,
    columns,
    explained,
    flow,
    hanging,
    head_line,
    signed_percent,
    stacked,
)
from memplan.report.estimate.job import job_items
from memplan.report.recommend.chart import front_lines
from memplan.report.recommend.lost import lost_once
from memplan.text import clean
from memplan.units import format_bytes

SHOWN = 8
"""Rows of the ranking, and of what lost; JSON has all."""
VAGUE = 10.0
"""Chosen: a gap that is worth no words, for the best might be eleven times as good."""
NOT_ALLOWED = "* changes the numerics: only with --allow"
"""What a star means."""
FIGURE_CELLS = 11
"""Width of a size or a rate."""


def render(
    answer: Recommendation, *, width: int = 80, explain: bool = False, quiet: bool = False, setup_file: str = ""
) -> list[Text]:
    """Write an answer as lines of styled text, ``quiet`` its verdict; a setup that was written has a file."""
    width = bounded(width)
    blocks = [verdict_lines(answer, width)]
    if not quiet:
        blocks += [ranked_lines(answer, width), front_lines(answer, width)]
        blocks += [what_if_lines(answer, width), lost_lines(answer, width), advice_lines(answer, width)]
        blocks += [next_lines(answer, setup_file)]
        if explain:
            blocks += explained(answer.assumptions, answer.not_modelled, width)
        blocks.append(head_lines(answer, width))
    return stacked(blocks, width)


def head_lines(answer: Recommendation, width: int) -> list[Text]:
    """Versions and times, the job, the device."""
    left = f"memplan {answer.memplan_version}  torch {answer.torch_version}  searched {answer.seconds:.1f} s"
    limit = f"{format_bytes(answer.limit_bytes)} for the step" if answer.limit_bytes else "no fixed limit"
    stop = ", interrupted" if answer.interrupted else ", out of budget" if answer.ended == "budget" else ""
    effort = f"{answer.traces} traced of {answer.candidates} ways{stop}"
    return [
        head_line(left, answer.target, width),
        *flow("job", job_items(answer) if answer.parameters else [], width),
        *flow("batch", [f"{answer.global_batch} {answer.counted} per optimizer step"], width),
        *flow("device", [f"{answer.gpus} x {clean(answer.gpu)}", limit, effort], width),
    ]


def verdict_lines(answer: Recommendation, width: int) -> list[Text]:
    """How the search ended, and the best, if something fits."""
    mark, style = MARKS[answer.proof.ending]
    title, _, rest = ending_words(answer).partition("  ")
    if answer.best is None:
        told = [remedy_words(remedy) for remedy in answer.remedies]
    else:
        figures = f"{format_bytes(answer.best.device_bytes)}  {rate(answer.best)}"
        rest, told = figures, [*filter(None, [rest]), answer.best.candidate.words]
    lines = [Text.assemble((f"{mark} {title}", f"bold {style}"), f"  {rest}")]
    lines += [Text(line, style="bold") for words in told for line in hanging("  ", words, width)]
    return [*lines, *(Text(line, style="dim") for words in remarks(answer) for line in hanging("  ", words, width))]


MARKS: Mapping[Ending, tuple[str, str]] = {
    "best": ("✓", "green"), "best_of_proved": ("✓", "green"), "nothing_fits": ("✗", "red"), "not_found": ("?", "yellow")
}  # fmt: skip
"""Ending → symbol and colour."""


def ending_words(answer: Recommendation) -> str:
    """``BEST OF WHAT WAS PROVED  12 of 409, at most 3.1 % from the best``: what the search came to."""
    proof = answer.proof
    count = f"{proof.proved} of {proof.ways}"
    match proof.ending:
        case "best":
            return "BEST (proved)"
        case "best_of_proved":
            return f"BEST OF WHAT WAS PROVED  {count}{_gap_words(proof.gap)}"
        case "nothing_fits":
            return f"NOTHING FITS (proved)  {_least_words(answer)}"
        case "not_found":
            return f"NOT FOUND  in {count}"


def _gap_words(gap: float | None) -> str:
    """How much better the best may be; nothing where a bound says next to nothing."""
    if gap is None or gap >= VAGUE:
        return ""
    return f", at most {math.ceil(1000 * gap) / 10:.1f} % from the best"


def _least_words(answer: Recommendation) -> str:
    """The least peak of all ways, or that none can be."""
    proof = answer.proof
    if proof.least_bytes is None:
        return "no way of what may be changed can be traced"
    at_least = "" if proof.is_least_reached else "at least "
    return f"least peak of the whole space is {at_least}{format_bytes(proof.least_bytes)}"


def remedy_words(remedy: Remedy) -> str:
    """What more would have to be allowed, and what to type then."""
    found = remedy.evaluated
    figures = f"{format_bytes(found.device_bytes)}, {rate(found)}, traced"
    return f"fits with --allow {','.join(remedy.allow)}: {found.candidate.words} ({figures})"


def remarks(answer: Recommendation) -> Iterator[str]:
    """What stands below the verdict."""
    given = answer.baseline
    if given is not None:
        state = "fits" if given.fits else f"does not fit: {given.reason}"
        yield f"as given: {format_bytes(given.device_bytes)}, {rate(given)}, {state}"
    if answer.untraced is not None:
        yield f"would be traced next: {answer.untraced.words}; a longer --time-limit tells whether it fits"
    if answer.cheapest is not None and not answer.remedies and (name := _fewest(answer, answer.cheapest)):
        yield f"{name}: {answer.cheapest.candidate.words} ({signed_percent(answer.cheapest.extra_time or 0.0)} time)"
        if not answer.cheapest.allowed:
            yield "it changes the numerics, and is taken only with --allow"
    if answer.best is not None and answer.best.candidate.spec.precision.startswith("bf16"):
        yield from (phrase for phrase in answer.not_modelled if phrase.startswith("bfloat16 "))
    parts = tuple(time_words(answer.best)) if answer.best is not None else ()
    if len(parts) > 1:
        yield "of the step: " + ", ".join(parts)


def _fewest(answer: Recommendation, cheapest: SingleChange) -> str:
    """What may be said of the fewest changes: more than one are the fewest where fewer are proved not to do."""
    count, least = len(cheapest.candidate.changes), answer.proof.least_changes
    if count == 1:
        return "a single change that makes it fit"
    is_proved = cheapest.allowed and least is not None and count <= least
    return "fewest changes that make it fit" if is_proved else ""


def time_words(evaluated: Evaluated) -> Iterator[str]:
    """``kernels 82 %``: where the time goes."""
    time = evaluated.time
    parts = {
        "kernels": time.compute,
        "waiting for the CPU": time.launch,
        "waiting for the network": time.exposed_communication,
        "waiting for the host": time.offload,
        "pipeline bubble": time.bubble,
    }
    for name, spent in parts.items():
        if time.total and spent / time.total >= 0.005:
            yield f"{name} {100 * spent / time.total:.0f} %"


def ranked_lines(answer: Recommendation, width: int) -> list[Text]:
    """What fits, the cheapest first."""
    if not answer.rows:
        return []
    heading = columns(("peak", f"{answer.counted}/s", "cost"), FIGURE_CELLS) + "  configuration"
    lines = [Text(heading, style="dim")]
    for row in answer.rows[:SHOWN]:
        figures = (format_bytes(row.device_bytes), f"{row.samples_per_second:.2f}", f"{row.cost:.3f}")
        lines += map(Text, hanging(columns(figures, FIGURE_CELLS) + "  ", row.candidate.words, width))
        if row.stage_bytes:
            words = f"stages: {', '.join(map(format_bytes, row.stage_bytes))}"
            lines += [
                Text(line, style="dim") for line in hanging(columns(("", "", ""), FIGURE_CELLS) + "  ", words, width)
            ]
    left = len(answer.rows) - SHOWN
    return lines + ([Text(f"  and {left} more that fit", style="dim")] if left > 0 else [])


def what_if_lines(answer: Recommendation, width: int) -> list[Text]:
    """Every single change, on this very job."""
    heading = columns(("saves", "time", ""), FIGURE_CELLS) + "  one change alone"
    lines = [Text(heading, style="dim")]
    for row in answer.what_ifs:
        if row.saved_bytes is None and row.reason == UNREACHED:
            continue
        if row.saved_bytes is None:
            words = f"{row.candidate.words}: {row.reason}"
            lines += [Text(line, style="dim") for line in hanging("  ", words, width)]
            continue
        figures = (format_bytes(row.saved_bytes), signed_percent(row.extra_time or 0.0), state(row))
        lines += map(Text, hanging(columns(figures, FIGURE_CELLS) + "  ", row.candidate.words, width))
    unreached = [row.candidate.words for row in answer.what_ifs if row.reason == UNREACHED]
    if unreached:
        left = len(unreached) - SHOWN
        named = ", ".join(unreached[:SHOWN]) + (f" and {left} more" if left > 0 else "")
        words = f"not reached in the time for single changes: {named}"
        lines += [Text(line, style="dim") for line in hanging("  ", words, width)]
    if any(not row.allowed for row in answer.what_ifs):
        lines.append(Text(f"  {NOT_ALLOWED}", style="dim"))
    told = [each.candidate for each in answer.what_ifs if each.saved_bytes is not None]
    if any(splits(answer, each) for each in (*told, *(row.candidate for row in answer.rows))):
        words = "another --batch-size gives the same gradients only where the loss is a mean over samples"
        lines += [Text(line, style="dim") for line in hanging("  ", words, width)]
    return lines if answer.what_ifs else []


def splits(answer: Recommendation, candidate: Candidate) -> bool:
    """Does a configuration compute in other micro-batches than the job as given?"""
    given = answer.options.get("batch_size")
    return given is not None and str(candidate.spec.batch_size) != given


def state(row: SingleChange) -> str:
    """``fits``, with a star where it is not allowed."""
    return ("fits" if row.fits else "no") + ("" if row.allowed else " *")


def lost_lines(answer: Recommendation, width: int) -> list[Text]:
    """Why others lost; what cannot be made on its own is said with the single changes, how many are left above."""
    lost = lost_once(answer)
    lines = [
        Text(line, style="dim") for words, reason in lost[:SHOWN] for line in hanging("  ", f"{words}: {reason}", width)
    ]
    left = len(lost) - SHOWN
    more = [Text(f"  and {left} more", style="dim")] if left > 0 else []
    return [Text("does not fit, or cannot be", style="dim"), *lines, *more] if lines else []


def advice_lines(answer: Recommendation, width: int) -> list[Text]:
    """What the global batch costs, where the noise scale is known."""
    if answer.critical is None:
        return []
    return [Text(line) for words in batch_advice(answer.critical) for line in hanging("  ", words, width)]


def batch_advice(critical: CriticalBatch) -> Iterator[str]:
    """The critical batch size in words, with two schedules."""
    from memplan.plan.batch.split import adaptive_schedule, linear_schedule

    yield (
        f"a batch of {critical.batch} with noise scale {critical.noise_scale:g} needs "
        f"{signed_percent(critical.extra_steps)} steps and {signed_percent(critical.extra_samples)} samples beyond "
        "the least (McCandlish et al. 2018)"
    )
    last = max(critical.batch, round(critical.noise_scale))
    if last > critical.batch:
        linear = ", ".join(str(phase.batch) for phase in linear_schedule(critical.batch, last, 4))
        adaptive = ", ".join(str(phase.batch) for phase in adaptive_schedule(critical.batch, last))
        yield f"advice: grow it in equal steps ({linear}; learning rate with it) or by doubling ({adaptive}; AdaBatch)"


OF_PROGRAMS = "--checkpoint is memplan.apply(model, ...) in the program; the rest are arguments of its own"
"""What to do with what is recommended for a program."""


def next_lines(answer: Recommendation, setup_file: str) -> list[Text]:
    """What to do with it."""
    if answer.best is None:
        return []
    if isinstance(answer.best.candidate.spec.target, ScriptTarget):
        return [Text(OF_PROGRAMS, style="dim")]
    if not setup_file:
        return [Text("-o setup.json writes the best for memplan emit, which makes configuration of it", style="dim")]
    return [Text(f"memplan emit {clean(setup_file)} --to FRAMEWORK", style="green")]


def rate(evaluated: Evaluated) -> str:
    """``12.34 samples/s``."""
    return f"{evaluated.samples_per_second:.2f} {evaluated.candidate.counted}/s"
