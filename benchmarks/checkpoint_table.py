"""The rows of ``checkpoint_models`` as tables, and what they must show as checks."""

import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version

from checkpoint_models import GOAL, MODELS, OWN_WAYS, Model, Row, cells

Rows = Mapping[tuple[str, str, str], Row]
TITLES = (
    f"{'way':16}{'budget of':>14}{'budget MB':>13}{'promise MB':>12}{'measured MB':>13}{'fits':>6}"
    f"{'off %':>8}{'FLOPs +%':>10}{'time +%':>9}{'gap %':>7}{'traces':>8}{'trace s':>9}{'solve s':>9}"
    f"{'cpu s':>8}{'prove s':>9}{'commit':>9}  result"
)


def header() -> str:
    """Machine, versions, and what the columns are."""
    import torch

    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "highspy"))
    machine = f"{_processor()} ({torch.backends.cpu.get_cpu_capability()}), {os.cpu_count()} cores (load {load})"
    return "\n".join(
        (
            f"{datetime.now(UTC).date()}, {machine}, Python {platform.python_version()}, {packages}",
            "One thread; fp32 and plain SGD unless stated; MB are millions of bytes; the machine did other work, too.",
            "budget N: the unplanned peak less (100 - N) % of the activations alive at it (activation_before_bytes); a",
            "budget named after another way is that way's measured peak. promise: the plan's peak_after_bytes.",
            "measured: two real steps by torch.profiler's memory events, as memplan validate; off: against promise.",
            "FLOPs: counted in a real step (torch.utils.flop_counter) against the unplanned one. time: of the traced",
            "plan, by roofline. full: every repeated block. selective: torchtitan's policy. compiled: torch.compile",
            "(AOTAutograd, eager kernels) with activation_memory_budget, which is no budget in bytes. sac_ilp:",
            "torch.distributed._tools, put on the model by this benchmark. solve s: on the wall, of all calls of the",
            "solver; cpu s: the same by processor time. commit: of memplan, when the cell ran. What does not fit is",
            "not run.",
        )
    )


def lines(rows: Rows) -> Iterator[str]:
    """A table for each model that has rows, then the checks."""
    for model in MODELS:
        base = rows.get((model.name, "none", ""))
        yield ""
        if base is None:
            yield f"{model.name}: not run"
            continue
        yield _title(model, base)
        yield TITLES
        for cell in cells(model):
            if cell.key in rows:
                yield line(rows[cell.key], base)
    yield ""
    yield from checks(rows)


def _title(model: Model, base: Row) -> str:
    size = f"batch {model.batch_size}" + (f" x seq {model.seq_len}" if model.seq_len else "")
    device = f", {model.device}, {model.precision}" if model.is_preset else ""
    if base.before is None or not base.activations:
        return f"{model.name}, {size}{device}: {base.error or 'no activations at the peak'}"
    least = "" if base.least is None else f"; least feasible {100 * _share(base.least, base):.0f} %"
    return (
        f"{model.name}, {size}{device}: unplanned {base.before / 1e6:,.1f} MB, "
        f"of them activations {base.activations / 1e6:,.1f} MB{least}"
    )


def _share(peak: int, base: Row) -> float:
    """A peak in the measure of the budgets."""
    return 1 - (base.before - peak) / base.activations


def line(row: Row, base: Row) -> str:
    """One cell."""
    extra = None if row.flops is None or not base.flops else 100 * (row.flops / base.flops - 1)
    known = row.measured or row.promise
    fits = "" if row.budget is None or known is None else "yes" if known <= row.budget else "NO"
    return (
        f"{row.way:16}{row.budget_of:>14}{_mega(row.budget):>13}{_mega(row.promise):>12}{_mega(row.measured):>13}"
        f"{fits:>6}{_text(_off(row), '+.3f'):>8}{_text(extra, '.2f'):>10}{_percent(row.promised_extra):>9}"
        f"{_percent(row.gap):>7}{_text(row.traces, 'd'):>8}{_text(row.trace_seconds, '.1f'):>9}"
        f"{_text(row.solve_seconds, '.2f'):>9}{_text(row.solve_cpu_seconds, '.2f'):>8}"
        f"{_text(row.prove_seconds, '.1f'):>9}{row.commit:>9}  {row.result}" + (f": {row.error}" if row.error else "")
    )


def checks(rows: Rows) -> Iterator[str]:
    """What must hold, and every row where it does not."""
    own = [row for row in rows.values() if row.way in OWN_WAYS]
    planned = [row for row in own if row.budget_of and row.measured is not None]
    kept = [row for row in planned if row.result in {"optimal", "feasible"}]
    over = [row for row in kept if row.measured > row.budget]
    off = [row for row in planned if abs(_off(row)) > GOAL]
    yield _check(f"{len(kept)} plans for a budget that was met: measured peak within it", over)
    yield _check(f"{len(planned)} plans run: measured peak within {GOAL:g} % of the promise", off)
    yield _check("a smaller budget never costs less", list(_not_monotone(rows)))
    yield _check("every cell of memplan's ran", [row for row in own if row.error])


def _check(what: str, wrong: list[Row]) -> str:
    return f"{what}: " + (", ".join(f"{row.model} {row.way}@{row.budget_of}" for row in wrong) if wrong else "yes")


def _not_monotone(rows: Rows) -> Iterator[Row]:
    """Rows of the integer program that are cheaper than one of a larger budget."""
    found = [row for row in rows.values() if row.way == "ilp" and row.result in {"optimal", "feasible"}]
    for row in found:
        others = (each for each in found if each.model == row.model and each.budget > row.budget)
        # Each costs at most its gap more than the least possible.
        if any(row.promised_extra + (each.gap or 0.0) < each.promised_extra for each in others):
            yield row


def _off(row: Row) -> float | None:
    return None if row.measured is None or not row.promise else 100 * (row.measured / row.promise - 1)


def _mega(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _processor() -> str:
    from cpu_truth import _processor

    return _processor()
