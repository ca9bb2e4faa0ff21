"""Command lines drawn from the real tables of options: valid and hostile values, repeated, missing, empty."""

import sys
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import typer

from memplan.cli.app import typer_app
from memplan.cli.options import CHOICES
from tests.fuzz.files import KINDS, ODD
from tests.fuzz.texts import as_argument, hostile

COMMANDS: dict[str, Any] = typer.main.get_command(typer_app()).commands  # type: ignore[attr-defined]
_FILES = (*KINDS, *ODD)
_GPUS = ("t4", "h100-80g", "A100-40GB", "cpu", "t5", "rtx-4090", "mine")
_TARGETS = (
    "model.py",
    "model.py:model",
    "preset:gpt2",
    "preset:nothing",
    "hf:.",
    "hf:config.json",
    "memplan:main",
    *_FILES,
)
_FORMATS = ("text", "json", "json=out.json", "text=out.txt", "html=out.html", "markdown", "github", "sarif=out.sarif",
            "junit=out.xml", "gitlab", "prometheus", "badge", "comment", "snapshot=out.pickle", "perfetto=out.trace",
            "speedscope", "csv=out.csv", "svg=out.svg", "json=full", "text=null", "json=folder", "json=loop",
            "yaml")  # fmt: skip
VALUES: dict[str, Sequence[str]] = {
    "TARGET": _TARGETS, "FILE": _FILES, "PLAN": ("none", "full", "plan.json", "setup.json", *_FILES), "GPU": _GPUS,
    "DIR": ("profiles", "folder", "out", ".", *_FILES), "FORMAT[=FILE]": _FORMATS, "N": ("1", "2", "8", "0", "-3",
    "4096"),
    "TIME": ("1s", "500ms", "2m", "0.5", "0", "-1s", "1 parsec"), "BYTES": ("1GiB", "300MiB", "0", "16GB", "-1",
    "5 apples"),
    "SHARE": ("0.5", "1", "0", "1.5", "50%"), "CONF": ("expandable_segments:True", "max_split_size_mb:64", "a:b", ""),
    "SPEC": ("x=float32[B,8]", "fsdp=8", "tp=2,fsdp=4", "ddp=2", "r=8,alpha=16", "adapter_config.json",
    "zero3=4,offload=yes"),
    "NORM": ("1.0", "0", "-1"), "VERDICT": ("oom", "tight", "unknown", "fits"), "WHAT": ("warning", "drift", "oom"),
    "NAME|W,C,E": ("balanced", "92,95,97", "1,2,3", "97,92,85", "a,b,c"),
    "HOST:PORT": ("127.0.0.1:0", "x:1", "127.0.0.1:70000", ":"),
    "CODE": ("MP001", "ma001", "MM104", "XX999"), "PRIORITY": ("high", "low", "critical"), "PATTERN": ("*.py", "[",
    "**"),
    "DISTRIBUTION": ("fixed", "fixed:64", "uniform:16-64", "normal:32,4", "lengths.txt", "uniform:9-1", "zipf"),
    "SIZES": ("2MiB,8MiB", "8MiB,2MiB", ",", "0"), "SIZE": ("1GiB", "-1"), "X": ("0.1", "1", "nan"), "B": ("1000",
    "0"),
    "NAME,...": ("precision", "checkpoint,sharding", "all", "x,y"), "ADDRESS": ("here",), "[JOB]...": ("small", "a",
    "none"),
    "[PATH]...": ("model.py", ".", "folder", "snapshot.pickle", "loop", "pipe"), "BASE": ("estimate.json",
    "gate.json", "HEAD"),
    "[HEAD]": ("estimate.json", "baseline.json", "HEAD~1"), "[JOBS.toml]": ("memplan.toml", "mine.toml", *_FILES),
    "[-- COMMAND…]": ("true",),
}  # fmt: skip
"""What stands for a value in help → values, most of them valid somewhere."""
BY_NAME: dict[str, Sequence[str]] = {
    "gpu": _GPUS, "name": ("t4", "nothing", "mine"), "level": ("block", "op", "x"), "method": ("auto", "ilp", "dp",
    "x"),
    "to": ("deepspeed", "accelerate", "torch", "fsdp2", "torchtitan", "axolotl", "transformers", "x"),
    "of": ("batch-size", "seq-len", "x"), "utilization": ("balanced", "x"), "backend": ("x", "lokey"),
    "device": ("cpu", "0", "9"),
    "job": ("small", "a", "none"), "jobs": ("1", "0", "x"), "blocks": ("0", "*", "["), "seed": ("0", "7", "-1"),
    "steps": ("1", "3", "0", "-1"), "plan": _FILES, "project": ("memplan.toml", "pyproject.toml", *_FILES),
}  # fmt: skip
"""The same by the name of a parameter, where that says more."""
_CASES = {"emit": "setup.json", "report": "estimate.json", "snapshot": "snapshot.pickle"}
"""What a command's argument most often is, so that more than reading goes wrong."""


_LEFT_OUT = {"help", "allow_network"}
"""The first ends every command well, the second would use the network."""


class Line(NamedTuple):
    """A command line."""

    command: str
    words: list[str]


def draw(random: Random) -> Line:
    """One command line."""
    name = random.choice([*COMMANDS])
    command = COMMANDS[name]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    options = [each for each in options if each.name not in _LEFT_OUT]
    words = [name]
    chosen = random.sample(options, k=min(len(options), random.choice((0, 1, 1, 2, 3, 5, 9))))
    if any(each.name == "gpu" for each in options) and random.random() < 0.8:
        chosen = [each for each in chosen if each.name != "gpu"]
        words += ["--gpu", random.choice(("t4", "h100-80g"))]
    for option in chosen:
        for _ in range(2 if random.random() < 0.1 else 1):
            words += _typed(option, random)
    if name == "monitor":
        words += ["--interval", "0.05s", "-q"]
    for argument in arguments:
        words += _argument(name, argument, random)
    if random.random() < 0.05:
        words.insert(random.randrange(len(words) + 1), as_argument(hostile(random)))
    return Line(name, [as_argument(word) for word in words])


def _argument(command: str, argument: Any, random: Random) -> list[str]:
    if random.random() < 0.04:
        return []
    if argument.name == "command":
        return _watched(command, random)
    if command in _CASES and random.random() < 0.6:
        return [_CASES[command]]
    return [_value(argument, random)]


def _watched(command: str, random: Random) -> list[str]:
    """Nothing that does anything."""
    if command == "numa":
        return []
    words = random.choice(
        (["true"], ["false"], [sys.executable, "-c", "print()"], ["no-such-program"], [hostile(random)], [])
    )
    return ["--", *words]


def _typed(option: Any, random: Random) -> list[str]:
    word = random.choice(option.opts)
    if option.is_flag:
        return [word] if random.random() < 0.97 else [f"{word}={hostile(random)}"]
    how = random.random()
    if how < 0.03:
        return [word]
    value = "" if how < 0.06 else _value(option, random)
    return [f"{word}={value}"] if random.random() < 0.3 and word.startswith("--") else [word, value]


def _value(parameter: Any, random: Random) -> str:
    if random.random() < 0.3:
        return hostile(random)
    known = CHOICES.get(parameter.name) or BY_NAME.get(parameter.name) or VALUES.get(parameter.metavar or "", ())
    return random.choice(known) if known else hostile(random)
