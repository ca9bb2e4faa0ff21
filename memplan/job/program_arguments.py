"""Arguments of a program that say how large its batch is, or how long its sequences are, read off its own parser."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from memplan.errors import MemplanError, UsageError
from memplan.files.read import read_bytes
from memplan.job.spec import JobSpec, ScriptTarget

Varied = Literal["batch_size", "seq_len"]
"""What is varied."""
WORDS: Mapping[str, Varied] = {"batch": "batch_size", "batch-size": "batch_size", "seq-len": "seq_len"}
"""What ``--vary`` calls it."""
_MEANS: Mapping[Varied, tuple[str, ...]] = {
    "batch_size": (
        "perdevicetrainbatchsize", "microbatchsize", "trainbatchsize", "batchsizepergpu", "batchsize", "minibatchsize",
        "bs", "bsz",
    ),
    "seq_len": ("seqlen", "maxseqlen", "maxseqlength", "sequencelength", "blocksize", "contextlength", "bptt"),
}  # fmt: skip
"""Names of such arguments in lower case without dashes; where a program has several, the first counts."""
_DECLARES = ("add_argument", "option")
"""What declares an argument: argparse's method, click's decorator."""
_TRAINER = ("--per_device_train_batch_size", 8)
"""What transformers.TrainingArguments calls it, and its default (transformers/training_args.py)."""


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
        found.setdefault(_bare(argument.name), argument)
    for name in _MEANS[varied]:
        if name in found:
            return found[name]
    what = "batch" if varied == "batch_size" else "seq-len"
    raise UsageError(
        f"{target.name} declares no argument that is its {varied.replace('_', ' ')}",
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


def value_of(target: ScriptTarget, argument: Argument) -> int | None:
    """What a program's words say of an argument, else its default."""
    words = target.arguments
    for place, word in enumerate(words):
        name, has_value, value = word.partition("=")
        text = value if has_value else words[place + 1] if place + 1 < len(words) else ""
        if name == argument.name and text.isdigit():
            return int(text)
    return argument.default


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

    Args:
        target: The program.
        varied: What is varied.
        name: The argument as it was typed; None finds it.

    Raises:
        UsageError: There is none.
    """
    known = argument_for(target, varied) if name is None else Argument(name, None)
    now = value_of(target, known)
    if name is not None and now is None:
        now = next((each.default for each in _declared(target) if each.name == name), None)
    return replace(target, varied={**target.varied, varied: known.name}), now


def _declared(target: ScriptTarget) -> Iterator[Argument]:
    """Arguments that a program's own file declares."""
    if target.path is None:
        return
    try:
        tree = ast.parse(read_bytes(target.path))
    except (MemplanError, OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=words) if method in _DECLARES:
                yield from _of_call(words, {each.arg: each.value for each in node.keywords})
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="int"), value=default):
                # A field of a dataclass that simple parsers (tyro, HfArgumentParser) read.
                yield Argument(f"--{name}", _number(default))
            case ast.Name(id="TrainingArguments"):
                yield Argument(*_TRAINER)
            case _:
                pass


def _of_call(words: list[ast.expr], options: Mapping[str | None, ast.expr]) -> Iterator[Argument]:
    names = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    typed = [name for name in names if name.startswith("-")]
    long = next((name for name in typed if _bare(name) in _MEANS["batch_size"] + _MEANS["seq_len"]), None)
    if long is not None:
        yield Argument(long, _number(options.get("default")))


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _bare(name: str) -> str:
    return name.lstrip("-").replace("-", "").replace("_", "").lower()
