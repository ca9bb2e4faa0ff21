"""The options of ``memplan recommend``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from memplan.cli import groups, options
from memplan.cli.options import option
from memplan.errors import UsageError
from memplan.findings.utilization import DEFAULT
from memplan.job.program_arguments import WORDS, Varied
from memplan.plan.recommend.records import ALLOWABLE
from memplan.plan.recommend.records import Group as GroupName

SEARCH = "Search"
FORMATS = ("text", "json", "html")
GROUPS = get_args(GroupName)
DEFAULT_BUDGET = "60s"

Gpus = Annotated[int, option("gpus", options.DEVICE, "How many of them.", metavar="N", default="1")]
HostMemory = Annotated[
    str | None,
    option("host_memory", options.DEVICE, "Host memory that a rank may take.", metavar="BYTES", default="no limit"),
]
TargetBatch = Annotated[
    int | None,
    option("target_batch", SEARCH, "Samples per optimizer step, over all GPUs: as micro-batches, accumulation, ranks.",
           metavar="N", default="the job's own"),
]  # fmt: skip
Fill = Annotated[
    bool, option("fill", SEARCH, f"The largest batch with which the job keeps the target of --utilization ({DEFAULT}).")
]
StepLimit = Annotated[
    float | None,
    option("step_time", SEARCH, "Longest optimizer step.", metavar="TIME", default="no limit", parser=options.seconds),
]
Allow = Annotated[
    str | None,
    option("allow", SEARCH, f"Changes of the numerics that may be made: {', '.join(ALLOWABLE)}.", metavar="NAME,...",
           default="none"),
]  # fmt: skip
Keep = Annotated[
    str | None,
    option("keep", SEARCH, f"What stays as it is: {', '.join(GROUPS)}.", metavar="NAME,...", default="the numerics"),
]
Alpha = Annotated[float, option("alpha", SEARCH, "Weight of memory, as a share of the device.", metavar="X",
                                default="0")]  # fmt: skip
Beta = Annotated[float, option("beta", SEARCH, "Weight of time, as a multiple of the job's own.", metavar="X",
                               default="1")]  # fmt: skip
TimeLimit = Annotated[
    str,
    option("time_limit", SEARCH, "Time for the search, or how much it may trace: 60s, 40traces.",
           metavar="TIME|TRACES", default="60s"),
]  # fmt: skip
Jobs = Annotated[
    int | None, option("jobs", SEARCH, "Traces at once, at least 2.", metavar="N", default="as many as processors")
]
NoiseScale = Annotated[
    float | None,
    option("noise_scale", SEARCH, "Measured gradient noise scale, in samples: adds advice on the batch.", metavar="B"),
]
Vary = Annotated[
    list[str] | None,
    option("vary", SEARCH, "The argument of a program that decides it, as batch=--batch-size or accumulation=--steps. "
           "Repeatable.", metavar="NAME=ARGUMENT", default="found in the program's parser"),
]  # fmt: skip
Out = Annotated[
    Path | None, option("out", SEARCH, "Write the best as a setup for memplan emit.", metavar="FILE", short="-o")
]
Emit = Annotated[
    list[str] | None,
    option("emit", SEARCH, "Write the best for a framework, too, as memplan emit does. Repeatable.",
           metavar="NAME[=DIR]", default="no; the folder is called NAME"),
]  # fmt: skip
Formats = Annotated[list[str] | None, options.formats("text, json or html;")]


def read_vary(texts: list[str]) -> dict[Varied, str]:
    """Read ``--vary``: what an argument of a program decides, and which it is.

    Raises:
        UsageError: One is of another form.
    """
    pairs = [text.partition("=") for text in texts]
    for text, (word, _, name) in zip(texts, pairs, strict=True):
        if WORDS.get(word) not in ("batch_size", "grad_accum") or not name.startswith("-"):
            raise UsageError(f"--vary takes batch=--ARGUMENT or accumulation=--ARGUMENT, not '{text}'")
    return {WORDS[word]: name for word, _, name in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """What there is to run on."""

    gpu: options.Gpu = None
    gpus: Gpus = 1
    utilization: options.Room = None
    host_memory: HostMemory = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What is searched, and how."""

    target_batch: TargetBatch = None
    fill: Fill = False
    step_time: StepLimit = None
    allow: Allow = None
    keep: Keep = None
    alpha: Alpha = 0.0
    beta: Beta = 1.0
    time_limit: TimeLimit = DEFAULT_BUDGET
    jobs: Jobs = None
    noise_scale: NoiseScale = None
    vary: Vary = None
    out: Out = None
    emit: Emit = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendReportOptions(groups.SearchReportOptions):
    """Reports, with the formats of this command."""

    formats: Formats = None
