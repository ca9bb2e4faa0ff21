"""``memplan estimate``: does this step fit on that GPU, and what is the peak made of?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.device import profiles_for
from memplan.cli.drawn import tail_plan
from memplan.cli.job import as_most_run_it, job_spec, lengths_of_job
from memplan.errors import ExitCode
from memplan.replay.conf import parse_conf

if TYPE_CHECKING:
    from memplan.hardware.prices import PriceTable
    from memplan.measure.compose import Detail
    from memplan.measure.records import Estimate
    from memplan.measure.savings import Switch

AllocConf = Annotated[
    str,
    options.option(
        "alloc_conf",
        options.DEVICE,
        "PYTORCH_CUDA_ALLOC_CONF of the run, as expandable_segments:True.",
        metavar="CONF",
        default="the program's own",
    ),
]
Prices = Annotated[
    Path | None,
    options.option(
        "prices", options.DEVICE, "What an hour of one GPU costs, by profile: TOML or JSON.", metavar="FILE"
    ),
]
Redact = Annotated[
    bool, options.option("redact", options.REPORT, "Hide module names, files and sentences that name code in reports.")
]
Timeline = Annotated[
    bool, options.option("timeline", options.REPORT, "Put the timeline of the HTML page into JSON, too.")
]
Plot = Annotated[bool, options.option("plot", options.REPORT, "Draw memory over the step in the terminal.")]


@groups.spread
def estimate(
    target: options.TargetWords,
    *,
    gpu: options.Gpus = None,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    alloc_conf: AllocConf = "",
    prices: Prices = None,
    drawn: groups.DrawnOptions,
    cache: groups.CacheOptions,
    report: groups.ExportOptions,
    redact: Redact = False,
    timeline: Timeline = False,
    plot: Plot = False,
    fail_on: options.FailOn = None,
    exit_zero: options.ExitZero = False,
) -> None:
    """Predict the peak memory of one step, without a GPU.

    The target's own code runs on this machine, in a child process, on tensors without data.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json, outputs.ESTIMATE_FORMATS) or ()
    problems.add(*check.wrong_values({"fail_on": fail_on} if fail_on is not None else {}))
    spec = job_spec(target, job, problems)
    lengths_of_job(spec, job, drawn, problems)
    profiles = problems.of(profiles_for, gpu, profile_dir)
    problems.of(outputs.check_exports, wanted, profiles or ())
    problems.of(parse_conf, alloc_conf)
    priced = problems.of(_price_table, prices, profile_dir)
    plan = tail_plan(profiles or (), drawn, problems)
    if redact and any(output.is_export for output in wanted):
        problems.add("--redact cannot hide the names in an export of the memory history")
    problems.raise_if_any()
    # Steps of drawn lengths are played one after another, which wants a step that repeats by itself.
    spec = as_most_run_it(spec, job, profiles or (), by_trainer=plan is None)
    from memplan.measure.compose import estimate as measured
    from memplan.measure.price import with_price

    asked = spec
    switched: tuple[Switch, ...] = ()
    if report.explain:
        from memplan.plan.switches import switches

        switched = switches(spec)
    if plan is not None:
        from memplan.simulate.tail_of_job import at_longest, with_tails

        asked = at_longest(spec, plan)
    with console.progress() as tell:
        results = measured(
            asked,
            profiles,
            detail=_detail(wanted, timeline=timeline or plot),
            switches=switched,
            envelope=report.explain,
            alloc_conf=alloc_conf,
            timeout=job.timeout,
            cache=cache.opened(),
            progress=tell,
        )
        if plan is not None:
            results = with_tails(
                results,
                spec,
                profiles,
                plan,
                lengths=drawn.seq_len_dist or "",
                alloc_conf=alloc_conf,
                timeout=job.timeout,
                cache=cache.opened(),
                progress=tell,
            )
    if redact:
        from memplan.report.redact import redacted

        results = redacted(results)
    estimates = [with_price(result.estimate, priced, spec.parallel.ranks) for result in results]
    digests = [result.digest for result in results]
    for output in wanted:
        if output.is_export:
            outputs.write_exports(output, results)
        else:
            outputs.write(
                output,
                estimates,
                explain=report.explain,
                quiet=report.quiet,
                digests=digests,
                timeline=timeline,
                plot=plot,
                commands=outputs.searches(target, job, profiles or ()),
            )
    raise typer.Exit(ExitCode.DONE if exit_zero else exit_code(estimates, fail_on))


def _price_table(file: Path | None, folders: Sequence[Path] | None) -> "PriceTable | None":
    from memplan.hardware.prices import read_prices

    return None if file is None else read_prices(file, folders or ())


def _detail(wanted: Sequence[outputs.Output], *, timeline: bool) -> "Detail":
    """As much of the history of each replay as is written: all of it is large."""
    if any(output.is_export for output in wanted):
        return "histories"
    return "timelines" if timeline or any(output.format == "html" for output in wanted) else "figures"


def exit_code(estimates: "Sequence[Estimate]", fail_on: str | None) -> ExitCode:
    """1 where ``--fail-on`` says so, 3 where a verdict is UNKNOWN, else 0."""
    verdicts = {str(estimate.verdict) for estimate in estimates}
    # The words stand from worst to mildest: a threshold fails for its own verdict and for those before it.
    thresholds = options.CHOICES["fail_on"]
    if fail_on is not None and verdicts & set(thresholds[: thresholds.index(fail_on) + 1]):
        return ExitCode.POLICY
    return ExitCode.UNKNOWN if "unknown" in verdicts else ExitCode.DONE
