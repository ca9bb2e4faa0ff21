"""Words that name a program and its arguments: ``train.py -- --lr 1e-3``, ``-- torchrun --nproc-per-node 8 x.py``."""

import ast
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import MemplanError, UsageError
from memplan.files.read import UnreadableError, read_bytes
from memplan.files.syntax import parse_source
from memplan.job.options import OPTIONS
from memplan.job.parallel import ALONE, Parallel
from memplan.job.spec import FileKind, FileTarget, ScriptTarget, Target
from memplan.job.target import existing_file, parse_target

_PYTHON = ("python", "python3")
_STARTERS = {"torchrun": (), "accelerate": ("launch",), "deepspeed": ()}
"""Launcher → what follows it."""
_LAUNCHING_MODULES = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
    "accelerate.commands.launch": ("accelerate", "launch"),
    "deepspeed.launcher.runner": ("deepspeed",),
}
"""What ``python -m`` may start → the launcher that it is."""
_RANKS = ("--nproc-per-node", "--nproc_per_node", "--num_processes", "--num-processes", "--num_gpus", "--num-gpus")
_NODES = ("--nnodes", "--num_machines", "--num-machines", "--num_nodes", "--num-nodes")
_SWITCHES = frozenset({
    "--standalone", "--run-path", "--run_path", "--no-python", "--no_python", "--multi_gpu", "--multi-gpu", "--cpu",
    "--use_cpu", "--quiet", "-q", "--debug", "--same_network", "--enable_cpu_affinity", "--tpu", "--no_local_rank",
    "--no_ssh", "--no_ssh_check", "--force_multi", "--save_pid", "--bind_cores_to_rank", "--dynamo_use_fullgraph",
    "--dynamo_use_dynamic", "--dynamo_use_regional_compilation", "--use_env", "--use-env",
})  # fmt: skip
"""Options of launchers without a value (torch/distributed/run.py, accelerate/commands/launch.py,
deepspeed/launcher/runner.py)."""
_OF_DEEPSPEED = ("--local_rank=0", "--no_local_rank")
_SAY_RANK = {
    "torch.distributed.launch": ("--local-rank=0", "--use_env", "--use-env"),
    "deepspeed": _OF_DEEPSPEED,
    "deepspeed.launcher.runner": _OF_DEEPSPEED,
}
"""Launcher → how it says the rank as an argument, and by which options it does not (torch/distributed/run.py,
deepspeed/launcher/launch.py)."""
_ACCELERATE = {
    "--mixed_precision": "ACCELERATE_MIXED_PRECISION",
    "--dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
}
"""What ``accelerate launch`` is told → where the program finds it (accelerate/utils/launch.py)."""
_NOT_READ = ("--config_file", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm", "--use_parallelism_config")
"""Options of ``accelerate launch`` that decide what each rank holds, and are not read."""
_LEARNS = ("backward", "fit", "train", "step")
"""Methods that only programs call which train."""
_LARGEST_COMMAND = 1 << 16
"""Bytes of a file that pip or a distribution writes to start a package; theirs have some hundred."""
_DIFFERENTIATES = ("grad", "grad_and_value")
"""Functions of ``torch.autograd`` and ``torch.func`` that only programs call which train, or models of forces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedWords:
    """What words ask for."""

    target: Target
    """What is run."""
    parallel: Parallel = ALONE
    """The ranks that a launcher starts."""


def parse_words(words: Sequence[str], *, folder: Path = Path(), kind: FileKind | None = None) -> ParsedWords:
    """Read a target, or a program with its arguments.

    Args:
        words: A target; or a Python file and its arguments; or a launcher, its options, a file and its arguments.
        folder: Where relative paths begin.
        kind: What a file is; None: what it looks like.

    Returns:
        The target. A file that trains and defines no model of its own is a program.

    Raises:
        UsageError: There are arguments that nothing takes, or a launcher's words name no file.
    """
    first, *rest = words
    launcher = _LAUNCHING_MODULES.get(rest[1]) if first in _PYTHON and rest[:1] == ["-m"] and rest[1:] else None
    if launcher is not None:
        return _launched(launcher[0], [*launcher[1:], *rest[2:]], folder, by=rest[1])
    if first in _PYTHON:
        return ParsedWords(target=_python(rest, folder))
    if first in _STARTERS:
        return _launched(first, rest, folder, by=first)
    if rest and (command := _command(first)) is not None:
        return ParsedWords(target=ScriptTarget(path=command, arguments=tuple(rest)))
    target = parse_target(first, folder)
    file = target.path if isinstance(target, FileTarget) and target.factory is None else None
    if kind == "script" and file is None:
        raise UsageError(f"'{first}' is no script: --as script is for Python files")
    if file is not None and (kind == "script" or (kind is None and (rest or trains(file)))):
        return ParsedWords(target=ScriptTarget(path=file, arguments=tuple(rest)))
    if rest:
        raise UsageError(
            f"'{first}' takes no arguments of its own: {' '.join(rest)}", hint="only programs (train.py) do"
        )
    return ParsedWords(target=target)


def parse_program(words: Sequence[str], *, folder: Path = Path()) -> ParsedWords:
    """Read words that name a program, whether its file looks like one or not; arguments are those of ``parse_words``.

    Raises:
        UsageError: They name none.
    """
    if not words:
        raise UsageError("no program is named", hint="write a Python file")
    if words[0] in (*_PYTHON, *_STARTERS):
        return parse_words(words, folder=folder)
    return ParsedWords(target=_python(words, folder))


def decided_by(target: Target, fields: Iterable[str]) -> list[tuple[str, str]]:
    """Fields of ``JobSpec`` that a program decides by itself, each with a reason; a target decides none."""
    if not isinstance(target, ScriptTarget):
        return []
    reason = f"would change nothing: {target.name} decides it"
    return [(name, reason) for name in fields if not OPTIONS[name].about.for_programs]


def trains(path: Path) -> bool:
    """Does a file train when it is run, and define no ``model``?"""
    try:
        tree = parse_source(read_bytes(path))
    except (MemplanError, OSError, SyntaxError, ValueError):
        return False
    if any(_defines_model(node) for node in tree.body):
        return False
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    learns = any(_learns(call) for call in calls)
    return learns and any(_runs(node) for node in tree.body)


def _learns(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in (*_LEARNS, *_DIFFERENTIATES)
    return isinstance(called, ast.Name) and called.id in _DIFFERENTIATES


def _defines_model(node: ast.stmt) -> bool:
    """Is a statement a factory by the name of ``model``, which takes nothing? Any other function may be called so."""
    if not isinstance(node, ast.FunctionDef) or node.name != "model":
        return False
    given = node.args
    return len(given.posonlyargs + given.args) == len(given.defaults) and None not in given.kw_defaults


def _runs(node: ast.stmt) -> bool:
    """Does a statement at module level do something, rather than define it?"""
    if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try):
        return any(_runs(inner) for inner in node.body)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _command(name: str) -> Path | None:
    """The file of a command that an installed package brings (``trl``, ``litgpt``), where it is one of Python's."""
    found = shutil.which(name) if "/" not in name and "\0" not in name else None
    if found is None:
        return None
    try:
        head = read_bytes(found, most=_LARGEST_COMMAND)
    except UnreadableError:
        # A program of machine code, which is larger.
        return None
    head = head.partition(b"\n")[0]
    return Path(found) if head.startswith(b"#!") and b"python" in head else None


def _python(words: Sequence[str], folder: Path) -> ScriptTarget:
    """What ``python`` would run; its own options have no effect on memory."""
    at = next((place for place, word in enumerate(words) if word == "-m" or not word.startswith("-")), None)
    if at is None or (words[at] == "-m" and len(words) < at + 2):
        raise UsageError(
            "these words name no program", hint="write a Python file, or -m and a module, and its arguments"
        )
    if words[at] == "-m":
        return ScriptTarget(path=None, module=words[at + 1], arguments=tuple(words[at + 2 :]))
    return ScriptTarget(path=existing_file(folder / words[at]), arguments=tuple(words[at + 1 :]))


def _launched(launcher: str, words: Sequence[str], folder: Path, *, by: str) -> ParsedWords:
    """What a launcher would start on each rank; some say the rank as an argument unless they are told not to."""
    options, program = _split(words[len(_STARTERS[launcher]) :])
    ranks = _number(options, _RANKS) * _number(options, _NODES)
    target = _python(program, folder)
    # One ``--`` behind the program is the launcher's own (``argparse.REMAINDER``).
    arguments = target.arguments[1:] if target.arguments[:1] == ("--",) else target.arguments
    says_rank, *silent = _SAY_RANK.get(by, ("",))
    if says_rank and not options.keys() & set(silent):
        arguments = (says_rank, *arguments)
    environment = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(_number(options, _RANKS)),
        "MASTER_ADDR": "localhost", "MASTER_PORT": "29500",
    }  # fmt: skip
    if launcher == "accelerate":
        environment = _told_by_accelerate(options, environment if ranks > 1 else {})
    target = ScriptTarget(path=target.path, module=target.module, arguments=arguments, environment=environment)
    return ParsedWords(target=target, parallel=Parallel(data="ddp", replicas=ranks) if ranks > 1 else ALONE)


def _told_by_accelerate(options: dict[str, str], ranks: dict[str, str]) -> dict[str, str]:
    """What a program finds of ``accelerate launch``; a process alone is of no group (prepare_simple_launcher_cmd_env).

    Raises:
        UsageError: Some of it is not read.
    """
    for name in _NOT_READ:
        if name in options:
            raise UsageError(
                f"accelerate launch {name}: what it says of the ranks is not read for a program",
                hint="leave it out for plain data parallelism: --num_processes and --mixed_precision say what it says",
            )
    told = {variable: options[name] for name, variable in _ACCELERATE.items() if name in options}
    if "ACCELERATE_DYNAMO_BACKEND" in told:
        told["ACCELERATE_DYNAMO_BACKEND"] = told["ACCELERATE_DYNAMO_BACKEND"].upper()
    if {"--cpu", "--use_cpu"} & options.keys():
        told["ACCELERATE_USE_CPU"] = "True"
    return ranks | told


def _split(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """A launcher's options with their values, and the program with its arguments."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--module"):
        name, has_value, value = words[at].partition("=")
        if not has_value and name not in _SWITCHES:
            at += 1
            value = words[at] if at < len(words) else ""
        options[name] = value
        at += 1
    return options, ["-m", *words[at + 1 :]] if words[at : at + 1] == ["--module"] else words[at:]


def _number(options: dict[str, str], names: Sequence[str]) -> int:
    text = next((options[name] for name in names if name in options), "1")
    # ``--nnodes 1:4`` is elastic: the most; ``--nproc-per-node gpu`` asks the machine.
    last = text.rpartition(":")[2]
    if not last.isdigit() or not int(last):
        raise UsageError(f"'{text}' is no number of ranks", hint="say how many: --nproc-per-node 8")
    return int(last)
