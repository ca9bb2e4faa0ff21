"""``memplan numa``: the machine's NUMA nodes, and where ranks, data workers and pinned memory belong."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, options, outputs
from memplan.cli.options import option
from memplan.job.limits import MAX_COUNT
from memplan.units import Bytes

if TYPE_CHECKING:
    from memplan.runtime.numa.commands import Commands
    from memplan.runtime.numa.placement import MachinePlacement
    from memplan.runtime.numa.records import Topology

FORMATS = ("text", "json", "sh")
PLACING = "Placing"
MACHINE = "Machine"

Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND…]", show_default=False, help="What each rank runs; none: python train.py."),
]
Ranks = Annotated[
    int | None,
    option("ranks", PLACING, "Processes on this machine.", metavar="N", default="one for each GPU, else for each node"),
]
Workers = Annotated[int, option("workers", PLACING, "Data workers of each rank.", metavar="N", default="0")]
Pinned = Annotated[
    str | None, option("pinned-per-rank", PLACING, "Pinned host memory of each rank, as 16GiB.", metavar="SIZE")
]
Step = Annotated[
    str | None,
    option(
        "step_bytes",
        PLACING,
        "What each rank sends to its GPU in a step, as 64MiB.",
        metavar="SIZE",
        default="as --pinned-per-rank",
    ),
]
Strict = Annotated[
    bool,
    option(
        "strict", PLACING, "Memory from the rank's node or none: the kernel kills a rank rather than give it other."
    ),
]
FormatsAndScript = Annotated[list[str] | None, options.formats("text, json or sh (a script that binds a rank);")]
OnlyCommands = Annotated[bool, option("quiet", options.REPORT, "Only the lines to type.", short="-q")]
Sysfs = Annotated[Path | None, option("sysfs", MACHINE, "Plan for the machine that --out wrote there.", metavar="DIR")]
Out = Annotated[
    Path | None, option("out", MACHINE, "Keep what was read of this machine, for --sysfs.", metavar="DIR", short="-o")
]


def numa(
    command: Command = None,
    *,
    ranks: Ranks = None,
    workers: Workers = 0,
    pinned_per_rank: Pinned = None,
    step_bytes: Step = None,
    strict: Strict = False,
    sysfs: Sysfs = None,
    out: Out = None,
    formats: FormatsAndScript = None,
    as_json: options.AsJson = False,
    quiet: OnlyCommands = False,
) -> None:
    """Place ranks, workers and pinned memory on NUMA nodes.

    Each rank goes to its GPU's node, a node's cores are shared out evenly, memory lies beside them. Prints the lines
    of numactl and torchrun that do so.
    """
    from memplan.runtime.numa.commands import DEFAULT_COMMAND, commands
    from memplan.runtime.numa.placement import Demand
    from memplan.runtime.numa.plan import place

    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, formats or [], as_json, FORMATS) or ()
    problems.add(*_wrong(ranks, workers, sysfs, out))
    pinned = problems.of(check.size, "--pinned-per-rank", pinned_per_rank)
    sent = problems.of(check.size, "--step-bytes", step_bytes)
    problems.raise_if_any()
    topology = _read(sysfs, out)
    demand = Demand(ranks=ranks, workers=workers, pinned_bytes=pinned or Bytes(0), step_bytes=sent or Bytes(0))
    placement = place(topology, demand)
    lines = commands(topology, placement, command or DEFAULT_COMMAND, strict=strict)
    for output in wanted:
        _write(output, topology, placement, lines, strict=strict, quiet=quiet)


def _wrong(ranks: int | None, workers: int, sysfs: Path | None, out: Path | None) -> Iterator[str]:
    if ranks is not None and not 1 <= ranks <= MAX_COUNT:
        yield f"--ranks must be between 1 and {MAX_COUNT}, not {ranks}"
    if not 0 <= workers <= MAX_COUNT:
        yield f"--workers must be between 0 and {MAX_COUNT}, not {workers}"
    if sysfs is not None and not (sysfs / "sys" / "devices" / "system").is_dir():
        yield f"--sysfs: there is no sys/devices/system in '{sysfs}'; 'memplan numa --out DIR' writes such a folder"
    if out is not None and out.exists() and not out.is_dir():
        yield f"--out: '{out}' is not a folder"


def _read(sysfs: Path | None, out: Path | None) -> "Topology":
    from memplan.runtime.numa.system_files import SystemFiles
    from memplan.runtime.numa.topology import read_topology, this_machine

    files = SystemFiles(sysfs) if sysfs else SystemFiles()
    topology = read_topology(files) if sysfs else this_machine(files)
    if out is not None:
        files.save(out)
    return topology


def _write(
    output: outputs.Output,
    topology: "Topology",
    placement: "MachinePlacement",
    lines: "Commands",
    *,
    strict: bool,
    quiet: bool,
) -> None:
    from memplan.report.numa import json as numa_json
    from memplan.report.numa import text
    from memplan.runtime.numa.commands import script

    outputs.write_rendered(
        output,
        text=lambda width: text.render(topology, placement, lines, width=width, quiet=quiet),
        json=lambda: numa_json.render(topology, placement, lines),
        sh=lambda: script(topology, placement, strict=strict),
    )
