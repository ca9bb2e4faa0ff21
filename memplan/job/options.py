"""Every option of a job: its field of ``JobSpec`` with what its type, its default and its ``JobOption`` say."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from memplan.job.adapters import Lora, parse_lora
from memplan.job.assumed import AssumedInteger, parse_assumed
from memplan.job.inputs import parse_input
from memplan.job.option import JobOption, option_of
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import InputSpec, JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionField:
    """One option."""

    name: str
    """The field."""
    kind: Any
    """Its type, but for None."""
    default: Any
    """Its value where nobody gives one."""
    about: JobOption
    """What is said of it."""

    @property
    def called(self) -> str:
        """Its name as people write it: ``batch-size``, ``input``."""
        return self.about.called or self.name.replace("_", "-")

    @property
    def item(self) -> Any:
        """Its type, and where it is repeated that of each value."""
        return get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind

    @property
    def summary(self) -> str:
        """What it does, where the words that it takes are told beside it."""
        return self.about.help.removesuffix(":")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes; none where it takes others."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def metavar(self) -> str | None:
        """What stands for its value in help; None for a switch, which takes none."""
        if self.kind is bool:
            return None
        return self.about.metavar or ("N" if self.kind in (int, float) else "NAME")

    @property
    def default_in_words(self) -> str:
        """What happens without it; empty for what is off or missing then."""
        if self.about.default or self.kind is bool or self.default == ():
            return self.about.default
        return "none" if self.default is None else str(self.default)

    def parser(self, folder: Path = Path()) -> Callable[[str], Any] | None:
        """Return what reads it from text of a form of its own, or raises a ``UsageError``; None where it has none."""
        parsers: dict[Any, Callable[[str], Any]] = {
            Parallel: parse_parallel,
            Lora: partial(parse_lora, folder=folder),
            InputSpec: parse_input,
            AssumedInteger: parse_assumed,
        }
        return parsers.get(self.item)


SPELLINGS: Mapping[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "bf16-true": "bf16",
    "16-mixed": "fp16-mixed",
    "adamw8bit": "adamw-8bit",
    "adamw-bnb-8bit": "adamw-8bit",
    "paged-adamw8bit": "paged-adamw-8bit",
    "adamw-torch": "adamw",
}
"""What torch, Lightning, bitsandbytes and transformers call a word of an option → that word."""


def spelled(word: str, choices: Collection[str]) -> str:
    """Return the choice that a word means: in capitals, with underscores or as a framework calls it; else the word."""
    plain = _plain(word)
    meant = {plain, SPELLINGS.get(plain, plain)}
    return next((choice for choice in choices if choice == word or _plain(choice) in meant), word)


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")


def _options() -> Mapping[str, OptionField]:
    hints = get_type_hints(JobSpec)
    return {
        field.name: OptionField(
            name=field.name, kind=_without_none(hints[field.name]), default=field.default, about=about
        )
        for field in fields(JobSpec)
        if (about := option_of(field)) is not None
    }


def _without_none(hint: Any) -> Any:
    """``int`` of ``int | None``; tuples and words stay what they are."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint


OPTIONS = _options()
"""Field → option, in the order of ``JobSpec``: all of it but the target, what goes with ``parallel``, and origins."""
