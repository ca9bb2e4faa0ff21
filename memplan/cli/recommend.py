"""``memplan recommend``: the best way to run a job on the GPUs at hand, ranked, explained, each row traced."""

import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from memplan.cli import check, console, endings, groups, options, outputs
from memplan.cli.device import profile_for
from memplan.cli.emit import check_name, peak_tracer, write
from memplan.cli.job import as_most_run_it, job_spec
from memplan.cli.recommend_options import (
    FORMATS,
    GROUPS,
    DeviceOptions,
    RecommendReportOptions,
    SearchOptions,
    read_vary,
)
from memplan.emit.records import SAYABLE
from memplan.errors import ExitCode, UsageError
from memplan.findings.utilization import DEFAULT, UTILIZATIONS, Utilization
from memplan.job.limits import MAX_COUNT
from memplan.job.spec import ScriptTarget
from memplan.plan.recommend.records import ALLOWABLE, Group, Search, StepLimits
from memplan.plan.recommend.time_limit import read_time_limit

if TYPE_CHECKING:
    from memplan.job.setup_file import Setup
    from memplan.plan.recommend.records import Recommendation


@groups.spread
def recommend(
    target: options.TargetWords,
    *,
    device: DeviceOptions,
    asked: SearchOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    cache: groups.CacheOptions,
    report: RecommendReportOptions,
) -> None:
    """Find the best way to run a job on the GPUs at hand.

    Changes of the numerics are shown, and taken only with --allow. Exit 3 where it is proved that
    nothing fits, 4 where nothing was found in the budget.
    """
    # What is imported and looked up before the search, --fill among it, is of its time.
    started = time.perf_counter()
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json, FORMATS) or ()
    problems.add(*_wrong(device, asked))
    emissions = problems.of(_emissions, asked.emit or []) or {}
    budget = problems.of(read_time_limit, asked.time_limit) or (0.0, None)
    host = problems.of(check.size, "--host-memory", device.host_memory)
    spec = job_spec(target, job, problems)
    vary = problems.of(read_vary, asked.vary or []) or {}
    if isinstance(spec.target, ScriptTarget) and (asked.out is not None or asked.emit):
        what = "writes setups, and a program cannot stand in one: its arguments decide what a setup would"
        problems.add(f"{'-o' if asked.out is not None else '--emit'} {what}")
    if vary and not isinstance(spec.target, ScriptTarget):
        problems.add("--vary names an argument of a program, and this is none")
    profile = problems.of(profile_for, device.gpu, profile_dir)
    problems.raise_if_any()
    spec = as_most_run_it(spec, job, [profile], by_trainer=False)
    from memplan.plan.recommend.bases import filled
    from memplan.plan.recommend.compose import recommend as find

    with _plan_file(asked.out) as plan_file, console.progress() as tell:
        search = _search(device, asked, host, plan_file, budget, emissions=emissions)
        if asked.fill:
            target_share = search.limits.utilization or DEFAULT
            spec = filled(spec, profile, search, target_share, timeout=job.timeout, cache=cache.opened(), progress=tell)
        answer = find(
            spec, profile, search, vary=vary, timeout=job.timeout, cache=cache.opened(), progress=tell, started=started
        )
    if asked.out is not None and answer.best is not None:
        _write_setup(answer, asked.out)
    for output in wanted:
        _write(output, answer, report, asked.out)
    if answer.best is not None and not answer.interrupted:
        _emit(answer, emissions, profile_dir or [], job.timeout, cache)
    if answer.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    was_cut = answer.proof.ending == "not_found"
    raise typer.Exit(endings.exit_code(found=answer.best is not None, was_cut=was_cut, exit_zero=report.exit_zero))


def _search(
    device: DeviceOptions,
    asked: SearchOptions,
    host: int | None,
    plan_file: Path,
    budget: tuple[float, int | None],
    *,
    emissions: Iterable[str],
) -> Search:
    return Search(
        gpus=device.gpus,
        target_batch=asked.target_batch,
        allow=cast("tuple[Group, ...]", _names(asked.allow)),
        keep=cast("tuple[Group, ...]", _names(asked.keep)),
        alpha=asked.alpha,
        beta=asked.beta,
        budget_seconds=budget[0],
        budget_traces=budget[1],
        processes=asked.jobs,
        limits=StepLimits(
            utilization=cast("Utilization | None", device.utilization or (DEFAULT if asked.fill else None)),
            host_bytes=host,
            step_seconds=asked.step_time,
        ),
        plan_file=plan_file,
        noise_scale=asked.noise_scale,
        emitted=tuple(SAYABLE[name] for name in emissions),
    )


@contextmanager
def _plan_file(out: Path | None) -> Iterator[Path]:
    """Beside the setup; where none is written, in a folder of its own, so that what is recommended can be typed.

    The folder goes again where no plan was made.
    """
    if out is not None:
        yield out.parent / f"{out.stem}.plan.json"
        return
    file = Path(tempfile.mkdtemp(prefix="memplan-")) / "best.plan.json"
    try:
        yield file
    finally:
        if not file.exists():
            shutil.rmtree(file.parent, ignore_errors=True)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _wrong(device: DeviceOptions, asked: SearchOptions) -> Iterator[str]:
    yield from check.wrong_word("--utilization", device.utilization, UTILIZATIONS)
    for name, known, text in (("allow", ALLOWABLE, asked.allow), ("keep", GROUPS, asked.keep)):
        for word in _names(text):
            if word not in known:
                yield f"--{name} takes {', '.join(known)}, not '{word}'"
    if asked.fill and asked.target_batch is not None:
        yield "--fill chooses the batch, and --target-batch does too"
    yield from _wrong_numbers(device, asked)
    yield from check.wrong_file("--out", asked.out)


def _wrong_numbers(device: DeviceOptions, asked: SearchOptions) -> Iterator[str]:
    for name, count, least in (
        ("gpus", device.gpus, 1),
        ("target-batch", asked.target_batch, 1),
        ("jobs", asked.jobs, 1),
    ):
        if count is not None and not least <= count <= MAX_COUNT:
            yield f"--{name} must be between {least} and {MAX_COUNT}, not {count}"
    for name, value in (
        ("step-time", asked.step_time),
        ("noise-scale", asked.noise_scale),
    ):
        if value is not None and not 0 < value < math.inf:
            yield f"--{name} must be a number above 0, not {value}"
    if not (0 <= asked.alpha < math.inf and 0 <= asked.beta < math.inf and asked.alpha + asked.beta > 0):
        yield f"--alpha and --beta must be numbers from 0, not both 0, not {asked.alpha} and {asked.beta}"


def _write(
    output: outputs.Output, answer: "Recommendation", report: RecommendReportOptions, setup: Path | None
) -> None:
    from memplan.report.recommend import html as recommend_html
    from memplan.report.recommend import json as recommend_json
    from memplan.report.recommend import text

    outputs.write_rendered(
        output,
        text=lambda width: text.render(
            answer, width=width, explain=report.explain, quiet=report.quiet, setup_file=str(setup or "")
        ),
        json=lambda: recommend_json.render(answer),
        html=lambda: recommend_html.render(answer),
    )


def _emissions(words: Sequence[str]) -> dict[str, Path]:
    """``--emit``: framework → folder."""
    found = {}
    for word in words:
        name, _, folder = word.partition("=")
        check_name(name, "--emit")
        found[name] = Path(folder or name)
        if not found[name].parent.is_dir() or (found[name].exists() and not found[name].is_dir()):
            raise UsageError(f"--emit: cannot make a folder '{found[name]}'")
    return found


def _emit(
    answer: "Recommendation",
    emissions: Mapping[str, Path],
    profile_dirs: Sequence[Path],
    timeout: float,
    cache: groups.CacheOptions,
) -> None:
    """Write the best for frameworks; which files that gives is told on standard error, beside a report."""
    from memplan.emit import formats

    for name, folder in emissions.items():
        setup = _setup(answer)
        peak = peak_tracer(setup.gpu, profile_dirs, timeout=timeout, cache=cache.opened(), tell=None)
        written = formats.emit(setup, name, peak)
        folder.mkdir(exist_ok=True)
        write(written, folder, lambda name: console.tell(f"wrote {name}"))


def _setup(answer: "Recommendation") -> "Setup":
    from memplan.job.setup_file import Prediction, make_setup

    best = answer.best
    assert best is not None  # noqa: S101 - the caller asked.
    predicted = Prediction(
        device_bytes=best.device_bytes,
        allocated_bytes=best.allocated_bytes,
        reserved_bytes=best.reserved_bytes,
        host_bytes=best.host_bytes,
        step_seconds=best.time.total,
    )
    return make_setup(best.candidate.spec, answer.gpu, predicted)


def _write_setup(answer: "Recommendation", file: Path) -> None:
    from memplan.job.setup_file import write_setup

    try:
        file.write_text(write_setup(_setup(answer)), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write '{file}': {error.strerror}") from error
