"""Options that several commands share, as groups: a command takes a group as one parameter, the user sees its options.

@spread
def estimate(target: options.Target, *, gpu: options.Gpus, job: JobOptions, report: ReportOptions) -> None: ...
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan.cli import options
from memplan.job.options import OPTIONS

if TYPE_CHECKING:
    from memplan.measure.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a step of a target is, beside the target itself."""

    timeout: float = options.DEFAULT_TIMEOUT
    """Seconds that the target's code may take."""
    config: list[Path] | None = None
    """Configuration files."""
    file_kind: options.FileKinds = None
    """What a Python file is."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Field of ``JobSpec`` → value, of what was typed."""

    @classmethod
    def of(cls, *, timeout: float, config: list[Path] | None, file_kind: str | None, **typed: Any) -> "JobOptions":
        """The group, of the values of ``JOB_PARAMETERS``."""
        given = {name: value for name, value in typed.items() if is_given(value)}
        return cls(timeout=timeout, config=config, file_kind=file_kind, given=given)

    def typed(self) -> tuple[str, ...]:
        """Names of all that was typed of the job, files included."""
        return (*(["config"] if self.config else []), *(["file_kind"] if self.file_kind else []), *self.given)

    def words(self) -> list[str]:
        """Return the options of the step as they were typed."""
        typed = {"config": self.config or [], **self.given}
        typed |= {"file_kind": self.file_kind} if self.file_kind else {}
        return [word for name, value in typed.items() for word in options.typed(name, value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Which reports are written, and how much they say."""

    formats: options.Formats = None
    as_json: options.AsJson = False
    explain: options.Explain = False
    quiet: options.Quiet = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReportOptions(ReportOptions):
    """The same for commands that search, and may find nothing."""

    exit_zero: options.ExitZero = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(ReportOptions):
    """The same for commands that export memory histories too."""

    formats: options.FormatsOfEstimate = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnOptions:
    """Steps whose lengths differ."""

    steps: options.Steps = 1000
    seq_len_dist: options.SeqLenDist = None
    seed: options.Seed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Where what was measured before is found."""

    cache_dir: options.CacheDir = None
    no_cache: options.NoCache = False

    def opened(self) -> "Cache | None":
        """The cache; None where there is to be none."""
        from memplan.measure.cache import Cache, default_folder

        return None if self.no_cache else Cache(self.cache_dir or default_folder())


def is_given(value: object) -> bool:
    """Was an option without a default typed?"""
    return value is not None and value is not False and value != []


def _job_parameters(panel: str) -> list[Parameter]:
    return [options.job_parameter(option) for option in OPTIONS.values() if option.about.panel == panel]


JOB_PARAMETERS = (
    *_job_parameters(options.TARGET),
    Parameter("file_kind", Parameter.KEYWORD_ONLY, default=None, annotation=options.FileKinds),
    Parameter("timeout", Parameter.KEYWORD_ONLY, default=options.DEFAULT_TIMEOUT, annotation=options.Timeout),
    Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=options.Config),
    *_job_parameters(options.STEP),
)
"""The options of a job, in the order of help."""


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups: Typer, which reads a command's options from its signature, sees theirs instead.

    Args:
        command: Each of its parameters that is annotated with a dataclass is a group, whose fields are options.
    """
    signature = inspect.signature(command)
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in annotations.items() if is_dataclass(kind)}
    options_of = {name: _options_of(group) for name, group in groups.items()}

    @functools.wraps(command)
    def taking_options(**typed: Any) -> None:
        made = {}
        for name, group in groups.items():
            values = {option.name: typed.pop(option.name) for option in options_of[name]}
            made[name] = JobOptions.of(**values) if group is JobOptions else group(**values)
        command(**typed, **made)

    parameters = [option for name, own in signature.parameters.items() for option in options_of.get(name, (own,))]
    vars(taking_options)["__signature__"] = signature.replace(parameters=parameters)
    return taking_options


def _options_of(group: Any) -> tuple[Parameter, ...]:
    if group is JobOptions:
        return JOB_PARAMETERS
    kind = Parameter.KEYWORD_ONLY
    return tuple(Parameter(field.name, kind, default=field.default, annotation=field.type) for field in fields(group))
