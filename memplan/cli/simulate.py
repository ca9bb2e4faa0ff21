"""``memplan simulate``: allocator policies side by side over many steps, and the option to run with."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.device import profile_for
from memplan.cli.drawn import distribution
from memplan.cli.job import as_most_run_it, job_spec, lengths_of_job
from memplan.cli.options import SIMULATION, option
from memplan.errors import ExitCode, UsageError
from memplan.files.read import is_file as readable
from memplan.job.spec import JobSpec

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.simulate.compose import Scenario

TargetWords = Annotated[
    list[str],
    typer.Argument(metavar="TARGET", help="As for estimate; or a CUDA memory snapshot (*.pickle).", show_default=False),
]
Confs = Annotated[
    list[str] | None,
    option("alloc_confs", SIMULATION, "Also compare this PYTORCH_CUDA_ALLOC_CONF. Repeatable.", metavar="CONF"),
]
Buckets = Annotated[
    str | None,
    option(
        "buckets",
        SIMULATION,
        "Block sizes of the bucketed pool, such as 2MiB,8MiB.",
        metavar="SIZES",
        default="fitted",
    ),
]
CompactAt = Annotated[
    float,
    option("compact_at", SIMULATION, "Free share at which live blocks are moved.", metavar="SHARE", default="0.2"),
]
FailOn = Annotated[
    str | None,
    option("fail_on", SIMULATION, "Exit 1 where a figure of the first --alloc-conf, else of PyTorch's defaults, is "
           "beyond: fragmentation>10%, reserved>40GiB, drift>1GiB.", metavar="FIGURE>MOST", default="never",
           choices=()),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions(groups.DrawnOptions):
    """What is played, and which settings are compared."""

    alloc_confs: Confs = None
    buckets: Buckets = None
    compact_at: CompactAt = 0.2
    fail_on: FailOn = None


@groups.spread
def simulate(
    target: TargetWords,
    *,
    gpu: options.Gpu = None,
    played: ScenarioOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    cache: groups.CacheOptions,
    report: groups.ReportOptions,
) -> None:
    """Compare allocator settings over many steps; recommend one.

    The target's own code runs on this machine, in a child process, on tensors without data.
    """
    from memplan.simulate.from_snapshot import is_snapshot
    from memplan.simulate.threshold import judged_run, parse_threshold

    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json) or ()
    if is_snapshot(target[0]):
        source: JobSpec | Path = problems.of(_snapshot, options.alone(target), job, played.seq_len_dist)
        problems.add(*check.wrong_values({"timeout": job.timeout}))
        profile: GpuProfile | None = problems.of(profile_for, gpu, profile_dir) if gpu else None
    else:
        source = job_spec(target, job, problems)
        lengths_of_job(source, job, played, problems)
        profile = problems.of(profile_for, gpu, profile_dir)
    if profile is not None and profile.kind == "cpu":
        problems.add(f"--gpu {profile.name} has no caching allocator to simulate")
    scenario = _scenario(problems, played)
    threshold = problems.of(parse_threshold, played.fail_on) if played.fail_on is not None else None
    problems.raise_if_any()
    if isinstance(source, JobSpec):
        source = as_most_run_it(source, job, [profile], by_trainer=False)
    from memplan.report.simulate.json import render as render_json
    from memplan.report.simulate.text import render as render_text
    from memplan.simulate.compose import simulate as run

    with console.progress() as tell:
        simulation = run(
            source,
            profile,
            scenario,
            timeout=job.timeout,
            cache=cache.opened(),
            progress=tell,
        )
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: render_text(simulation, width=width, explain=report.explain, quiet=report.quiet),
            json=lambda: render_json(simulation),
        )
    beyond = threshold.passed_by(judged_run(simulation, scenario.confs)) if threshold is not None else ""
    if beyond:
        console.tell(f"failed: {beyond}\n")
    raise typer.Exit(ExitCode.POLICY if beyond else ExitCode.DONE)


def _snapshot(target: str, job: groups.JobOptions, seq_len_dist: str | None) -> Path:
    given = [options.flag(name) for name in job.typed()] + (["--seq-len-dist"] if seq_len_dist else [])
    if given:
        raise UsageError(f"{', '.join(given)} would change nothing: a snapshot's history is what it is")
    path = Path(target)
    if not readable(path):
        hint = "write one with torch.cuda.memory._dump_snapshot(path)"
        raise UsageError(f"there is no file '{target}'", hint=hint)
    return path


def _scenario(problems: check.Problems, played: ScenarioOptions) -> "Scenario":
    from memplan.replay.conf import parse_conf
    from memplan.simulate.buckets import parse_buckets
    from memplan.simulate.compose import Scenario

    if not 0 <= played.compact_at <= 1:
        problems.add(f"--compact-at must be a share from 0 to 1, not {played.compact_at}")
    confs = tuple("".join(text.split()) for text in played.alloc_confs or ())
    for text in confs:
        problems.of(parse_conf, text)
    return Scenario(
        steps=played.steps,
        lengths=distribution(played, problems),
        seed=played.seed,
        confs=confs,
        buckets=(problems.of(parse_buckets, played.buckets) if played.buckets is not None else None) or (),
        compact_at=played.compact_at,
    )
