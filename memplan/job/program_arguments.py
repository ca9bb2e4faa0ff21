"""Arguments of a program that say how large its batch is, or how long its sequences are, read off its own parser."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from memplan.errors import MemplanError, UsageError
from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source
from memplan.job.spec import JobSpec, Precision, ScriptTarget

Varied = Literal["batch_size", "seq_len", "grad_accum"]
"""What is varied."""
WORDS: Mapping[str, Varied] = {
    "batch": "batch_size", "batch-size": "batch_size", "seq-len": "seq_len", "accumulation": "grad_accum"
}  # fmt: skip
"""What ``--vary`` calls it."""
_IN_WORDS: Mapping[Varied, str] = {
    "batch_size": "batch size", "seq_len": "seq len", "grad_accum": "gradient accumulation"
}  # fmt: skip
_MEANS: Mapping[Varied, tuple[str, ...]] = {
    "batch_size": (
        "perdevicetrainbatchsize", "microbatchsize", "trainbatchsize", "batchsizepergpu", "batchsize", "minibatchsize",
        "bs", "bsz", "batch",
    ),
    "seq_len": ("seqlen", "maxseqlen", "maxseqlength", "sequencelength", "blocksize", "contextlength", "bptt"),
    "grad_accum": (
        "gradientaccumulationsteps", "gradaccumsteps", "accumulationsteps", "accumsteps", "gradientaccumulation",
        "gradaccum", "accumulategradbatches",
    ),
}  # fmt: skip
"""Names of such arguments in lower case without dashes; where a program has several, the first counts."""
_DECLARES = ("add_argument", "option")
"""What declares an argument: argparse's method, click's decorator."""
_TRAINER = (("--per_device_train_batch_size", 8), ("--gradient_accumulation_steps", 1))
"""What transformers.TrainingArguments calls them, and its defaults (transformers/training_args.py)."""
_AUTOCAST: Mapping[str, Precision] = {"--bf16": "bf16-mixed", "--fp16": "fp16-mixed"}
"""Switches that turn autocast on in transformers.TrainingArguments, and in programs that follow it."""


class Argument(NamedTuple):
    """An argument of a program."""

    name: str
    """As it is typed: ``--batch-size``."""
    default: int | None
    """What the program takes without it; None: not known."""


def argument_for(target: ScriptTarget, varied: Varied) -> Argument:
    """Find the argument that decides a program's batch size or sequence length.

    Raises:
        UsageError: Its parser declares none that is called so.
    """
    found: dict[str, Argument] = {}
    for argument in _declared(target):
        found.setdefault(bare(argument.name), argument)
    for name in _MEANS[varied]:
        if name in found:
            return found[name]
    what = next(word for word, field in WORDS.items() if field == varied)
    raise UsageError(
        f"{target.name} declares no argument that is its {_IN_WORDS[varied]}",
        hint=f"say which it is: --vary {what}=--NAME",
    )


def with_argument(target: ScriptTarget, name: str, value: int) -> ScriptTarget:
    """The program with another value of one argument, which is typed last."""
    kept: list[str] = []
    words = iter(target.arguments)
    for word in words:
        if word == name:
            next(words, None)
        elif not word.startswith(f"{name}="):
            kept.append(word)
    typed = [f"{name}={value}"] if name.startswith("--") else [name, str(value)]
    return replace(target, arguments=(*kept, *typed))


def value_of(target: ScriptTarget, argument: str) -> int | None:
    """What a program's words say of an argument, else its parser's default; None: not known."""
    words = target.arguments
    for place, word in enumerate(words):
        name, has_value, value = word.partition("=")
        text = value if has_value else words[place + 1] if place + 1 < len(words) else ""
        if name == argument and text.isdigit():
            return int(text)
    return next((each.default for each in _declared(target) if each.name == argument), None)


def precision_words(target: ScriptTarget) -> Mapping[Precision, tuple[str, ...]]:
    """What to type for autocast: switches that a program's parser declares; none where one of them is typed."""
    if any(word.partition("=")[0] in _AUTOCAST for word in target.arguments):
        return {}
    return {_AUTOCAST[name]: (name,) for name in _AUTOCAST if name in _switches(target)}


def declared_names(target: ScriptTarget) -> Iterator[tuple[str, str | None]]:
    """Names of arguments that a program's own file declares, and each one's action; None where it takes a value."""
    for node in _nodes(target):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=words, keywords=options):
                action = next((ast.unparse(each.value) for each in options if each.arg == "action"), None)
                yield from ((str(word.value), action) for word in words if isinstance(word, ast.Constant))
            case _:
                pass


def _switches(target: ScriptTarget) -> set[str]:
    """Switches that a program's own file declares; those of TrainingArguments where it takes these."""
    found = {name for name, action in declared_names(target) if action is not None}
    takes_those = any(isinstance(node, ast.Name) and node.id == "TrainingArguments" for node in _nodes(target))
    return found | (_AUTOCAST.keys() if takes_those else set())


def at(spec: JobSpec, varied: Varied, value: int) -> JobSpec:
    """The job at another batch size or sequence length: a program's by its argument, a target's by its option.

    Raises:
        UsageError: Nothing is known that decides a program's.
    """
    changed = replace(spec, batch_size=value) if varied == "batch_size" else replace(spec, seq_len=value)
    if not isinstance(spec.target, ScriptTarget):
        return changed
    name = spec.target.varied.get(varied) or argument_for(spec.target, varied).name
    return replace(changed, target=with_argument(spec.target, name, value))


def varied_program(target: ScriptTarget, varied: Varied, name: str | None) -> tuple[ScriptTarget, int | None]:
    """A program whose argument is known, and the value that it has now.

    The name is the argument as it was typed; None finds it.

    Raises:
        UsageError: There is none.
    """
    known = argument_for(target, varied) if name is None else Argument(name, None)
    now = value_of(target, known.name)
    return replace(target, varied={**target.varied, varied: known.name}), now


def _nodes(target: ScriptTarget) -> Iterator[ast.AST]:
    """All of a program's own file; nothing where it cannot be read."""
    if target.path is None:
        return
    try:
        tree = parse_source(read_bytes(target.path))
    except (MemplanError, OSError, SyntaxError, ValueError):
        return
    yield from ast.walk(tree)


def _declared(target: ScriptTarget) -> Iterator[Argument]:
    """Arguments that a program's own file declares."""
    for node in _nodes(target):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=words) if method in _DECLARES:
                yield from _of_call(words, {each.arg: each.value for each in node.keywords})
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="int"), value=default):
                # A field of a dataclass that simple parsers (tyro, HfArgumentParser) read.
                yield Argument(f"--{name}", _number(default))
            case ast.Name(id="TrainingArguments"):
                yield from (Argument(*each) for each in _TRAINER)
            case _:
                pass


def _of_call(words: list[ast.expr], options: Mapping[str | None, ast.expr]) -> Iterator[Argument]:
    names = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    typed = [name for name in names if name.startswith("-")]
    long = next((name for name in typed if any(bare(name) in names for names in _MEANS.values())), None)
    if long is not None:
        yield Argument(long, _number(options.get("default")))


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def bare(name: str) -> str:
    """An argument's name in lower case, without dashes."""
    return name.lstrip("-").replace("-", "").replace("_", "").lower()
