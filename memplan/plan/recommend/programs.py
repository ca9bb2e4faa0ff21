"""Programs in a search: which arguments of theirs stand for what options are of a target, and what stays as it is.

A candidate says what is changed in the fields of its job, as those of targets do; ``in_force`` types it before a trace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from memplan.errors import UsageError
from memplan.job.parallel import ALONE
from memplan.job.program_arguments import Varied, precision_words, value_of, varied_program, with_argument
from memplan.job.spec import JobSpec, Precision, ScriptTarget
from memplan.plan.recommend.changes import JobChange
from memplan.plan.recommend.records import Group, Search

OUTSIDE = frozenset({"checkpoint", "attention"})
"""Fields that memplan puts into force on a program from outside."""
_ARGUMENTS: Mapping[Varied, str] = {"batch_size": "batch", "grad_accum": "accumulation"}
"""Field → what ``--vary`` calls it."""


def known_program(
    spec: JobSpec, search: Search, given: Mapping[Varied, str]
) -> tuple[JobSpec, Search, tuple[str, ...]]:
    """Find the arguments of a program that a search may change; other jobs stay as they are.

    Returns:
        The job, its fields as the program's arguments have them; the search without what cannot be changed; a
        sentence for each thing that cannot.

    Raises:
        UsageError: The search asks for what the program's arguments do not decide.
    """
    if not isinstance(spec.target, ScriptTarget):
        return spec, search, ()
    if search.gpus > 1 and spec.parallel == ALONE:
        what = f"{spec.target.name} runs on one rank"
        raise UsageError(
            what, where="--gpus", hint=f"start it by its launcher: torchrun --nproc-per-node {search.gpus}"
        )
    values, sentences = _values(spec.target, given)
    arguments: dict[str, str] = {name: argument for name, (argument, _) in values.items()}
    fixed: tuple[Group, ...] = ()
    if len(values) < len(_ARGUMENTS):
        fixed = ("split",)
        if search.target_batch is not None:
            raise UsageError("; ".join(sentences), where="--target-batch", hint="say them: --vary batch=--NAME")
    arguments |= {"precision": "typed"} if precision_words(spec.target) else {}
    spec = replace(
        spec,
        target=replace(spec.target, varied=arguments),
        batch_size=values.get("batch_size", ("", spec.batch_size))[1],
        grad_accum=values.get("grad_accum", ("", spec.grad_accum))[1],
    )
    left = "parallelism, optimizer, loss and adapters are the program's own, and stay as they are"
    return spec, replace(search, keep=(*search.keep, *fixed)), (*sentences, left)


def _values(target: ScriptTarget, given: Mapping[Varied, str]) -> tuple[dict[Varied, tuple[str, int]], tuple[str, ...]]:
    """Field → its argument and value now; and a sentence for each field that has none."""
    found: dict[Varied, tuple[str, int]] = {}
    sentences: list[str] = []
    for name, word in _ARGUMENTS.items():
        try:
            known, now = varied_program(target, name, given.get(name))
        except UsageError as error:
            sentences.append(f"{error.what}: --vary {word}=--NAME says which it is; its batch is not split")
            continue
        if now is None:
            sentences.append(f"the value of {known.varied[name]} is not known; type it behind --")
        else:
            found[name] = known.varied[name], now
    return found, tuple(sentences)


def program_changes(changes: tuple[JobChange, ...], spec: JobSpec) -> tuple[JobChange, ...]:
    """Of single changes those that can be made of a job: of a program from outside, or by an argument of its own."""
    return tuple(_of_program(changes, spec, spec.target)) if isinstance(spec.target, ScriptTarget) else changes


def _of_program(changes: tuple[JobChange, ...], spec: JobSpec, target: ScriptTarget) -> Iterator[JobChange]:
    words = precision_words(target)
    for change in changes:
        values = dict(change.fields)
        if values.keys() <= OUTSIDE:
            yield change
        elif values.keys() == {"precision"} and values["precision"] in words and spec.precision == "fp32":
            yield replace(change, text=" ".join(words[values["precision"]]))


def split_in_words(micro_batch: int, grad_accum: int, spec: JobSpec) -> str:
    """``--batch-size 2 --grad-accum 4``, by a program's own names, without what stays."""
    names = {"batch_size": "--batch-size", "grad_accum": "--grad-accum"}
    if isinstance(spec.target, ScriptTarget):
        names |= spec.target.varied
    values = (("batch_size", micro_batch), ("grad_accum", grad_accum))
    return " ".join(f"{names[name]} {value}" for name, value in values if value != getattr(spec, name))


def in_force(spec: JobSpec) -> JobSpec:
    """The job with what its fields say typed as the program's arguments; other jobs as they are."""
    target = spec.target
    if not isinstance(target, ScriptTarget):
        return spec
    for name in _ARGUMENTS:
        argument = target.varied.get(name)
        if argument is not None and value_of(target, argument) != getattr(spec, name):
            target = with_argument(target, argument, getattr(spec, name))
    target = replace(target, arguments=(*target.arguments, *_precision(target, spec.precision)))
    return replace(spec, target=target)


def _precision(target: ScriptTarget, precision: Precision) -> tuple[str, ...]:
    return precision_words(target).get(precision, ()) if "precision" in target.varied else ()
