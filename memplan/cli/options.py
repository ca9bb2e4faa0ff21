"""Options of more than one command, each declared once for Typer; ``memplan.cli.groups`` puts them together.

Those of a job are made of the fields of ``JobSpec``. They default to None, so that what was typed can be told from what
was not; the defaults themselves stand there. Choices are checked in ``memplan.cli.check``, together with everything
else. Options of one command alone stand in its file and are made by ``option`` too.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from memplan.errors import UsageError
from memplan.findings.utilization import UTILIZATIONS
from memplan.job.options import OPTIONS, OptionField
from memplan.job.spec import FILE_KINDS
from memplan.units import parse_seconds

CHOICES: Mapping[str, tuple[str, ...]] = {
    **{name: field.choices for name, field in OPTIONS.items() if field.choices},
    "fail_on": ("oom", "tight", "unknown"),
    "file_kind": FILE_KINDS,
}
"""Parameter → the words it takes."""
DEFAULT_TIMEOUT = 600.0
"""Seconds that the target's code may take before its process is ended."""

TARGET, STEP, DEVICE, REPORT, SIMULATION = "Target", "Step", "Device", "Report", "Simulation"
"""Panels of ``--help``."""


_CALLED: Mapping[str, str] = {
    "formats": "format",
    "as_json": "json",
    "alloc_confs": "alloc-conf",
    "file_kind": "as",
} | {name: field.called for name, field in OPTIONS.items()}
"""Parameter → its option, where it is called otherwise: an option that is repeated names one of its values."""


def flag(name: str) -> str:
    """The option that sets a parameter: ``batch_size`` → ``--batch-size``."""
    return f"--{_CALLED.get(name, name.replace('_', '-'))}"


def typed(name: str, value: object) -> list[str]:
    """Return the words that set a parameter: ``["--batch-size", "8"]``; a switch is one word, or none."""
    if isinstance(value, bool):
        return [flag(name)] if value else []
    values = value if isinstance(value, list) else [value]
    return [word for each in values for word in (flag(name), str(each))]


def seconds(text: str | float) -> float:
    """A duration as it is typed: ``30``, ``30s``, ``2m``; Typer passes a default through here, too."""
    with suppress(ValueError):
        # Numbers that are no durations, such as -1, are complained about together with everything else.
        return float(text)
    try:
        return parse_seconds(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def option(
    name: str,
    panel: str | None,
    help_text: str,
    *,
    metavar: str | None = None,
    default: str = "",
    short: str = "",
    choices: Sequence[str] | None = None,
    parser: Callable[..., Any] | None = None,
) -> Any:
    """What Typer is told of an option.

    Args:
        name: The parameter that it sets; ``flag`` says how it is typed, ``CHOICES`` which words it takes.
        panel: Where ``--help`` lists it; None is with the options that have no panel.
        help_text: What it does.
        metavar: What stands for its value; None for a switch.
        default: Its default, in words.
        short: Its one-letter form.
        choices: The words that it takes, where they are not those of the option of this name elsewhere.
        parser: Reads what is typed, where its type does not.
    """
    choices = CHOICES.get(name, ()) if choices is None else choices
    parts = [help_text, ", ".join(choices) + "." if choices else "", f"(default: {default})" if default else ""]
    return typer.Option(
        flag(name),
        *([short] if short else []),
        help=" ".join(part for part in parts if part),
        metavar=metavar,
        autocompletion=(lambda: list(choices)) if choices else None,
        rich_help_panel=panel,
        show_default=False,
        parser=parser,
    )


def formats(words: str) -> Any:
    """Return what Typer is told of ``--format``, which takes these words; they end a clause or a sentence."""
    rest = f"{'With' if words.endswith('.') else 'with'} =FILE not to standard output. Repeatable."
    return option("formats", REPORT, f"{words} {rest}", metavar="FORMAT[=FILE]", default="text", short="-f")


def job_parameter(field: OptionField) -> Parameter:
    """Return the parameter of which Typer makes an option of a job."""
    about = field.about
    info = option(field.name, about.panel, about.help, metavar=field.metavar, default=field.default_in_words)
    kind: Any = Annotated[_typed(field.kind), info]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=False if field.kind is bool else None, annotation=kind)


def _typed(kind: Any) -> Any:
    """Return the type that Typer reads an option into: switches and numbers as they are, anything else as text."""
    if kind in (bool, int, float):
        return bool if kind is bool else kind | None
    return (list[str] if get_origin(kind) is tuple else str) | None


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="model.py, model.py:factory, package.module:factory, hf:DIR, hf:config.json or preset:NAME.",
        show_default=False,
    ),
]
TargetWords = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET",
        help="model.py, model.py:factory, package.module:factory, hf:DIR, hf:config.json or preset:NAME; "
        "or a program: train.py -- ARGS, -- torchrun --nproc-per-node 8 train.py ARGS.",
        show_default=False,
    ),
]


def alone(words: Sequence[str]) -> str:
    """A target that takes no arguments.

    Raises:
        UsageError: Others follow it.
    """
    first, *rest = words
    if rest:
        raise UsageError(f"'{first}' takes no arguments of its own: {' '.join(rest)}")
    return first


Timeout = Annotated[
    float,
    option("timeout", TARGET, "Limit for running the target's code.", metavar="TIME", default="600s", parser=seconds),
]

FileKinds = Annotated[
    str | None,
    option("file_kind", TARGET, "What a Python file is.", metavar="KIND", default="what it looks like"),
]
Config = Annotated[
    list[Path] | None,
    option("config", STEP, "Settings of ds_config.json, accelerate.yaml, axolotl.yml, a JSON file of "
           "TrainingArguments or a setup; what is typed wins. Repeatable.", metavar="FILE"),
]  # fmt: skip
DEFAULT_GPU = "h100-80g"
"""What an answer is for where nobody says it."""
Gpus = Annotated[
    list[str] | None,
    option("gpu", DEVICE, "GPU profile, as 'memplan gpus' lists them; '*24g' or 'all'. Repeatable.", metavar="NAME",
           default=f"the project's, else {DEFAULT_GPU}"),
]  # fmt: skip
Gpu = Annotated[
    list[str] | None,
    option("gpu", DEVICE, "One GPU profile, as 'memplan gpus' lists them.", metavar="NAME",
           default=f"the project's first, else {DEFAULT_GPU}"),
]  # fmt: skip
"""Of a command that answers for one GPU: a list, so that a second one is no silent change of the first."""
GpusInstead = Annotated[
    list[str] | None,
    option("gpu", DEVICE, "GPU profile, '*24g' or 'all' instead of the jobs' own. Repeatable.", metavar="NAME"),
]
ProfileDirs = Annotated[
    list[Path] | None,
    option("profile_dir", DEVICE, "Folder of further GPU profiles. Repeatable.", metavar="DIR"),
]

Room = Annotated[
    str | None,
    option("utilization", DEVICE, f"Room to leave: {', '.join(UTILIZATIONS)}.", metavar="NAME",
           default="what the interval needs"),
]  # fmt: skip
Steps = Annotated[int, option("steps", SIMULATION, "Steps to play.", metavar="N", default="1000")]
SeqLenDist = Annotated[
    str | None,
    option("seq_len_dist", SIMULATION, "Length of each step: fixed, fixed:N, uniform:LOW-HIGH, normal:MEAN,DEVIATION, "
           "lognormal:MEDIAN,SIGMA[,min=N][,max=N], or a file with one per line.", metavar="DISTRIBUTION",
           default="fixed"),
]  # fmt: skip
Seed = Annotated[int, option("seed", SIMULATION, "Seed of the drawn lengths.", metavar="N", default="0")]

Formats = Annotated[list[str] | None, formats("text or json;")]
_EXPORTS = "or an export of the memory history: snapshot=FILE, perfetto, speedscope."
FormatsOfEstimate = Annotated[list[str] | None, formats(f"text, json or html; {_EXPORTS}")]
AsJson = Annotated[bool, option("as_json", REPORT, "Same as --format json.")]
CacheDir = Annotated[
    Path | None,
    option("cache_dir", None, "Where figures and traces of unchanged jobs are kept.", metavar="DIR",
           default="MEMPLAN_CACHE_DIR, else the user's cache"),
]  # fmt: skip
NoCache = Annotated[bool, option("no_cache", None, "Trace every job, whether it has changed or not.")]
JsonAlone = Annotated[bool, option("as_json", None, "Write JSON instead of the table.")]
Explain = Annotated[bool, option("explain", REPORT, "Show every assumption and where each value came from.")]
Quiet = Annotated[bool, option("quiet", REPORT, "Only the verdict.", short="-q")]
FailOn = Annotated[
    str | None,
    option("fail_on", REPORT, "Exit 1 at this verdict or a worse one:", metavar="VERDICT", default="never"),
]
ExitZero = Annotated[bool, option("exit_zero", REPORT, "Exit 0 whatever the verdict.")]
