"""``memplan simulate``: allocator policies side by side over many steps, and the option to run with."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan.cli import check, console, options, outputs
from memplan.cli.estimate import load_profiles
from memplan.errors import UsageError
from memplan.job.spec import JobSpec

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.simulate.compose import Scenario

_PANEL = "Simulation"


def _option(*words: str, help_text: str, metavar: str) -> Any:
    return typer.Option(*words, help=help_text, metavar=metavar, rich_help_panel=_PANEL, show_default=False)


Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="As for estimate; or a CUDA memory snapshot (*.pickle).", show_default=False),
]
Gpu = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        help="One GPU profile, as 'memplan gpus' lists them; a snapshot needs none.",
        metavar="NAME",
        rich_help_panel="Device",
        show_default=False,
    ),
]
Steps = Annotated[int, _option("--steps", help_text="Steps to play. (default: 1000)", metavar="N")]
SeqLenDist = Annotated[
    str | None,
    _option(
        "--seq-len-dist",
        help_text="Length of each step: fixed, fixed:N, uniform:LOW-HIGH, normal:MEAN,DEVIATION, "
        "lognormal:MEDIAN,SIGMA[,min=N][,max=N], or a file with one per line. (default: fixed)",
        metavar="DISTRIBUTION",
    ),
]
Seed = Annotated[int, _option("--seed", help_text="Seed of the drawn lengths. (default: 0)", metavar="N")]
Confs = Annotated[
    list[str] | None,
    _option("--conf", help_text="Also compare this PYTORCH_CUDA_ALLOC_CONF. Repeatable.", metavar="CONF"),
]
Buckets = Annotated[
    str | None,
    _option(
        "--buckets", help_text="Block sizes of the bucketed pool, such as 2MiB,8MiB. (default: fitted)", metavar="SIZES"
    ),
]
CompactAt = Annotated[
    float,
    _option("--compact-at", help_text="Free share at which live blocks are moved. (default: 0.2)", metavar="SHARE"),
]
MOST_STEPS = 1_000_000
"""Most steps: figures of every step are kept."""


def simulate(
    target: Target,
    *,
    gpu: Gpu = None,
    steps: Steps = 1000,
    seq_len_dist: SeqLenDist = None,
    seed: Seed = 0,
    conf: Confs = None,
    buckets: Buckets = None,
    compact_at: CompactAt = 0.2,
    allow_network: options.AllowNetwork = False,
    trust_remote_code: options.TrustRemoteCode = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
    batch_size: options.BatchSize = None,
    seq_len: options.SeqLen = None,
    inputs: options.Inputs = None,
    precision: options.Precision = None,
    optimizer: options.Optimizer = None,
    optimizer_impl: options.OptimizerImpl = None,
    grad_accum: options.GradAccum = None,
    clip_grad_norm: options.ClipGradNorm = None,
    attention: options.Attention = None,
    checkpoint: options.Checkpoint = None,
    compile: options.Compile = None,  # noqa: A002 (the option's name)
    mode: options.Mode = None,
    max_new_tokens: options.MaxNewTokens = None,
    data_dependent: options.DataDependent = None,
    profile_dir: options.ProfileDirs = None,
    formats: options.Formats = None,
    as_json: options.AsJson = False,
    explain: options.Explain = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare allocator settings over many steps; recommend one.

    The target's own code runs on this machine, in a child process, on tensors without data.
    """
    typed = dict(locals())  # First, while the parameters are all there is.
    from memplan.simulate.from_snapshot import is_snapshot

    job = {field.name: typed[field.name] for field in fields(JobSpec) if field.name in typed and field.name != "target"}
    problems = check.Problems()
    reports = problems.of(outputs.parse_outputs, formats or [], as_json) or ()
    problems.add(*check.wrong_values({"timeout": timeout}))
    problems.add(*_wrong_values(steps, compact_at))
    if is_snapshot(target):
        source: JobSpec | Path = problems.of(_snapshot, target, job, seq_len_dist)
    else:
        source = check.job_spec(target, job, problems)
        problems.add(*_wrong_for_a_job(gpu, seq_len, seq_len_dist))
    profiles = problems.of(load_profiles, gpu or [], profile_dir or []) or ()
    problems.add(*_wrong_profiles(profiles))
    scenario = _scenario(problems, typed)
    problems.raise_if_any()
    from memplan.report.simulate import render as render_text
    from memplan.report.simulate_json import render as render_json
    from memplan.simulate.compose import simulate as run

    with console.progress(enabled=not quiet) as tell:
        simulation = run(source, profiles[0] if profiles else None, scenario, timeout=timeout, progress=tell)
    for report in reports:
        outputs.write_rendered(
            report,
            text=lambda width: render_text(simulation, width=width, explain=explain, quiet=quiet),
            json=lambda: render_json(simulation),
        )


def _wrong_values(steps: int, compact_at: float) -> list[str]:
    wrong = []
    if not 1 <= steps <= MOST_STEPS:
        wrong.append(f"--steps must be between 1 and {MOST_STEPS}, not {steps}")
    if not 0 <= compact_at <= 1:
        wrong.append(f"--compact-at must be a share from 0 to 1, not {compact_at}")
    return wrong


def _wrong_for_a_job(gpu: list[str] | None, seq_len: int | None, seq_len_dist: str | None) -> list[str]:
    wrong = [] if gpu else ["--gpu is missing: a job is traced for a device"]
    if seq_len is not None and seq_len_dist is not None:
        wrong.append("--seq-len and --seq-len-dist both say how long sequences are; give one")
    return wrong


def _wrong_profiles(profiles: "Sequence[GpuProfile]") -> list[str]:
    several = ["one --gpu at a time is simulated"] if len(profiles) > 1 else []
    return several + [
        f"--gpu {profile.name} has no caching allocator to simulate" for profile in profiles if profile.kind == "cpu"
    ]


def _snapshot(target: str, job: dict[str, Any], seq_len_dist: str | None) -> Path:
    given = [options.flag(name) for name, value in job.items() if value not in (None, False, [])]
    given += ["--seq-len-dist"] if seq_len_dist else []
    if given:
        raise UsageError(f"{', '.join(given)} would change nothing: a snapshot's history is what it is")
    path = Path(target)
    if not path.is_file():
        hint = "write one with torch.cuda.memory._dump_snapshot(path)"
        raise UsageError(f"there is no file '{target}'", hint=hint)
    return path


def _scenario(problems: check.Problems, typed: Mapping[str, Any]) -> "Scenario":
    from memplan.replay.conf import parse_conf
    from memplan.simulate.buckets import parse_buckets
    from memplan.simulate.compose import Scenario
    from memplan.simulate.lengths import parse_distribution

    confs = tuple("".join(text.split()) for text in typed["conf"] or ())
    for text in confs:
        problems.of(parse_conf, text)
    return Scenario(
        steps=typed["steps"],
        lengths=problems.of(parse_distribution, typed["seq_len_dist"] or "fixed"),
        seed=typed["seed"],
        confs=confs,
        buckets=(problems.of(parse_buckets, typed["buckets"]) if typed["buckets"] is not None else None) or (),
        compact_at=typed["compact_at"],
    )
