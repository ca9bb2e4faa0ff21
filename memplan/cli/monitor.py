"""``memplan monitor``: run a command, watch its memory, and say at the end what came of it."""

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, options, outputs
from memplan.cli.monitor_display import Display, server
from memplan.cli.options import option
from memplan.errors import ExitCode, UsageError
from memplan.findings.utilization import DEFAULT, THRESHOLDS, UTILIZATIONS

if TYPE_CHECKING:
    from memplan.runtime.monitor.child import Wanted
    from memplan.runtime.monitor.outcome import RunOutcome
    from memplan.runtime.monitor.records import Thresholds

WATCH, SERVE = "Watching", "Serving"
FAIL_ON = ("warning", "critical", "emergency", "drift")
_DRIFT = "MM003"
_LOOPBACK = "127.0.0.1"

Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND…", show_default=False, help="What to run, as python train.py.")
]
PlanFile = Annotated[
    Path | None,
    option("plan", WATCH, "What memplan estimate -f json=FILE wrote: its peaks are compared.", metavar="FILE"),
]
Gpu = Annotated[str | None, option("gpu", WATCH, "Which GPU of the plan, where it has several.", metavar="NAME")]
Interval = Annotated[
    float, option("interval", WATCH, "Time between checks.", metavar="TIME", default="1s", parser=options.seconds)
]
Levels = Annotated[
    str,
    option("levels", WATCH, f"Where warning, critical and emergency begin: {', '.join(UTILIZATIONS)}, or percents.",
           metavar="NAME|W,C,E", default=DEFAULT),
]  # fmt: skip
Outside = Annotated[bool, option("outside", WATCH, "Put nothing into the command's processes: read the driver only.")]
CountCpu = Annotated[
    bool, option("count_cpu", WATCH, "Count CPU tensors to the byte; needs a C++ compiler where the command runs.")
]
Snapshots = Annotated[
    Path,
    option(
        "snapshots", WATCH, "Folder for CUDA memory snapshots when an allocation fails.", metavar="DIR", default="."
    ),
]
LogFile = Annotated[Path | None, option("log", options.REPORT, "Append each check as a line of JSON.", metavar="FILE")]
FailOn = Annotated[
    list[str] | None,
    # Not by ``option``: other commands know the name with other words.
    typer.Option("--fail-on", metavar="WHAT", rich_help_panel=options.REPORT, show_default=False,
                 help=f"Exit 1 where the command ends well but this came: {', '.join(FAIL_ON)}. Repeatable."),
]  # fmt: skip
Prometheus = Annotated[
    str | None, option("prometheus", SERVE, "Serve metrics at this address, as 127.0.0.1:9108.", metavar="HOST:PORT")
]
Web = Annotated[
    str | None, option("web", SERVE, "Serve a live page at this address, as 127.0.0.1:9109.", metavar="HOST:PORT")
]
Job = Annotated[str | None, option("job", SERVE, "The run's name there.", metavar="NAME", default="the script's")]
Formats = Annotated[
    list[str] | None,
    option("formats", options.REPORT, "text or json, with =FILE; text goes to standard error without. Repeatable.",
           metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
Quiet = Annotated[
    bool, option("quiet", options.REPORT, "No live view; at the end only how it ended, and why.", short="-q")
]


def monitor(
    command: Command = None,
    *,
    plan: PlanFile = None,
    gpu: Gpu = None,
    interval: Interval = 1.0,
    levels: Levels = DEFAULT,
    outside: Outside = False,
    count_cpu: CountCpu = False,
    snapshots: Snapshots = Path(),
    log: LogFile = None,
    fail_on: FailOn = None,
    prometheus: Prometheus = None,
    web: Web = None,
    job: Job = None,
    formats: Formats = None,
    quiet: Quiet = False,
) -> int:
    """Run a command and watch its memory, live.

    Compares it with a plan, and explains at the end why it ran out. Exits as the command does.
    """
    from memplan.runtime.monitor.child import Wanted
    from memplan.runtime.monitor.plan import read_plan

    problems = check.Problems()
    wanted_reports = problems.of(outputs.parse_outputs, formats or [], False) or ()
    problems.add(*_wrong(command, interval, snapshots, fail_on or []), *_wrong_reports(wanted_reports))
    if outside and count_cpu:
        problems.add("--count-cpu counts within the command's processes, and --outside stays out of them")
    thresholds = problems.of(_thresholds, levels)
    addresses = {name: problems.of(_address, name, text) for name, text in _served(prometheus, web) if text}
    found = problems.of(read_plan, plan, gpu) if plan is not None else None
    problems.raise_if_any()
    wanted = Wanted(
        command=tuple(command or ()),
        plan=found,
        thresholds=thresholds,
        interval=interval,
        log=log,
        inside=not outside,
        count_cpu=count_cpu,
        snapshots=snapshots,
    )
    outcome = _watched(wanted, addresses, job or _script(wanted.command), quiet=quiet)
    for report in wanted_reports:
        _write(report, outcome, quiet=quiet)
    return _exit_code(outcome, fail_on or [])


def _watched(wanted: "Wanted", addresses: "dict[str, tuple[str, int]]", job: str, *, quiet: bool) -> "RunOutcome":
    from memplan.runtime.monitor.run import Watch

    display = Display(quiet=quiet)
    watch = Watch(wanted, display.show)
    with ExitStack() as stack:
        for name, (host, port) in addresses.items():
            running = server(name)(watch.latest, host=host, port=port, job=job, plan=wanted.plan)
            stack.enter_context(closing(running))
            console.write_plain(f"memplan: {name} at http://{running.address}/\n", sys.stderr)
        stack.enter_context(display)
        return watch.run()


def _write(report: outputs.Output, outcome: "RunOutcome", *, quiet: bool) -> None:
    from memplan.report.monitor.json import render as render_json
    from memplan.report.monitor.text import render

    if report.file is None:
        # Standard output is the command's.
        console.write_lines(render(outcome, width=console.terminal_width(), quiet=quiet), sys.stderr)
        return
    outputs.write_rendered(
        report, text=lambda width: render(outcome, width=width, quiet=quiet), json=lambda: render_json(outcome)
    )


def _exit_code(outcome: "RunOutcome", fail_on: list[str]) -> int:
    """The command's, but 1 where it ended well and what must not be was."""
    found = {level for level in FAIL_ON if level != "drift" and _LEVEL_NUMBERS[level] <= outcome.level}
    found |= {"drift"} if any(each.code == _DRIFT for each in outcome.recommendations) else set()
    if outcome.ending.exit_code == ExitCode.DONE and found & set(fail_on):
        return ExitCode.POLICY
    return outcome.ending.exit_code


_LEVEL_NUMBERS = {"warning": 1, "critical": 2, "emergency": 3}


def _wrong(command: list[str] | None, interval: float, snapshots: Path, fail_on: list[str]) -> Iterator[str]:
    if not command:
        yield "a command is missing: memplan monitor [OPTIONS] -- python train.py"
    if not 0.01 <= interval < math.inf:
        yield f"--interval must be at least 0.01 seconds, not {interval}"
    if not snapshots.is_dir():
        yield f"--snapshots: there is no folder '{snapshots}'"
    for each in fail_on:
        if each not in FAIL_ON:
            yield f"--fail-on must be one of {', '.join(FAIL_ON)}, not '{each}'"


def _wrong_reports(reports: "tuple[outputs.Output, ...]") -> Iterator[str]:
    if any(report.format == "json" and report.file is None for report in reports):
        yield "--format json needs a file here: standard output is the command's (-f json=FILE)"


def _thresholds(text: str) -> "Thresholds":
    from memplan.runtime.monitor.records import Thresholds

    shares: list[float] = []
    if preset := next((THRESHOLDS[name] for name in UTILIZATIONS if name == text.strip()), None):
        shares = [preset.warn, preset.critical, preset.emergency]
    with suppress(ValueError):
        shares = shares or [float(part.strip().removesuffix("%")) / 100 for part in text.split(",")]
    if len(shares) != 3 or not 0 < shares[0] <= shares[1] <= shares[2] <= 1:
        known = f"{', '.join(UTILIZATIONS)}, or three rising percentages such as 92,95,97"
        raise UsageError(f"--levels takes {known}, not '{text}'")
    return Thresholds(warning=shares[0], critical=shares[1], emergency=shares[2])


def _served(prometheus: str | None, web: str | None) -> list[tuple[str, str | None]]:
    return [("prometheus", prometheus), ("web", web)]


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--{name} takes HOST:PORT such as {_LOOPBACK}:9108, not '{text}'")
    return host or _LOOPBACK, int(port)


def _script(command: tuple[str, ...]) -> str:
    """What people call the run: its script, else its program."""
    script = next((part for part in command if part.endswith(".py")), command[0])
    return Path(script).stem
