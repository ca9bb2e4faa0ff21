"""Describes an option of a job, at its field of ``JobSpec``; everything that tells of options follows from it.

An option is a field there and the place where it acts. Its type says which words it takes and how it is read, the
record here says the rest. ``memplan.job.options`` puts both together, and from that follow the options of every command
(``cli.options``), the keys of setup and project files and their schemas, limits, origins of values, the job line of
reports, redaction, what is told of frameworks' files, and the table in docs/usage.md.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, Concatenate, Literal, ParamSpec

from annotated_types import Ge, Gt

from memplan.contract.fields import LIMITS

Panel = Literal["Target", "Step"]
_Said = ParamSpec("_Said")
_KEY = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Another option, without which one means nothing."""

    field: str
    """The other one."""
    value: str | None = None
    """What it must be; None: anything but nothing."""
    reason: str
    """``is for the workers of a DataLoader``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """What people are told of an option, what it may be, and who else tells of it."""

    help: str
    """What it does, for ``--help`` and docs/usage.md; the words that it takes and its default follow by themselves."""
    called: str = ""
    """Its name as an option and as a key; empty: its field's."""
    panel: Panel = "Step"
    """Where ``--help`` lists it."""
    metavar: str = ""
    """What stands for its value; empty: N or NAME, by its type."""
    default: str = ""
    """Its default in words; empty: as the field has it."""
    page: str = ""
    """The page of docs/ that tells more."""
    least: int | None = None
    """The smallest count; None where it is no count."""
    above: float | None = None
    """What a number must be more than."""
    needs: Needed | None = None
    """An option that must be given too."""
    on_job_line: Literal["always", "given", "never"] = "given"
    """When the job line of a report has it; given: where it is not the default."""
    training_only: bool = False
    """Is it of training alone? The job line of other modes leaves it out."""
    for_programs: bool = False
    """Does it say something of a program (``train.py -- ARGS``) that its own code does not decide?"""
    names_code: bool = False
    """May its value hold names of somebody's code? Redacted reports hide it."""
    by_hand: str = ""
    """What to do where a framework's file has no word for it, with ``value``; empty: no framework needs to know."""

    @property
    def limits(self) -> tuple[Ge | Gt, ...]:
        """What a file's value must be beyond its type."""
        least = () if self.least is None else (Ge(self.least),)
        return least if self.above is None else (*least, Gt(self.above))


def _at_field(record: Callable[_Said, JobOption]) -> Callable[Concatenate[Any, _Said], Any]:
    def option(default: Any, /, *args: _Said.args, **kwargs: _Said.kwargs) -> Any:
        """Return a field of ``JobSpec`` that people give: its default, and a ``JobOption``."""
        about = record(*args, **kwargs)
        return field(default=default, metadata={_KEY: about, LIMITS: about.limits})

    return option


option = _at_field(JobOption)


def option_of(field: Field[Any]) -> JobOption | None:
    """Return the description at a field; None where no option sets the field."""
    return field.metadata.get(_KEY)
