"""The command line: its commands, and how every way to fail becomes an exit code.

A crash never exits 1: that code says "policy not met" and nothing else.
"""

import os
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan.cli import bare, console
from memplan.cli.audit import audit
from memplan.cli.batch import batch
from memplan.cli.checkpoint_plan import checkpoint_plan
from memplan.cli.diff import diff
from memplan.cli.doctor import doctor
from memplan.cli.emit import emit
from memplan.cli.estimate import estimate
from memplan.cli.explain import explain
from memplan.cli.formula import formula
from memplan.cli.gate import gate
from memplan.cli.gpus import gpus
from memplan.cli.graph import graph
from memplan.cli.help import shorten_help
from memplan.cli.init import init
from memplan.cli.monitor import monitor
from memplan.cli.numa import numa
from memplan.cli.old_names import renamed
from memplan.cli.open import open_page
from memplan.cli.presets import presets
from memplan.cli.recommend import recommend
from memplan.cli.report import report
from memplan.cli.reuse_plan import reuse_plan
from memplan.cli.schema import schema
from memplan.cli.simulate import simulate
from memplan.cli.snapshot import snapshot
from memplan.cli.sweep import sweep
from memplan.cli.validate import validate
from memplan.errors import ExitCode, MemplanError, UsageError
from memplan.job.noise import hushed

# The base of Typer's usage errors (bad value < usage error < this). Its home moved in Typer 0.26, its place did not.
if TYPE_CHECKING:
    _TyperError = typer.BadParameter
else:
    _TyperError = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="memplan",
    help="Does this PyTorch step fit on that GPU? Plan its memory before renting one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_COMMANDS = (
    estimate, checkpoint_plan, recommend, batch, reuse_plan, graph, init, gate, audit, diff, report, open_page, sweep,
    snapshot, simulate, validate, emit, formula, monitor, gpus, numa, presets, explain, schema, doctor,
)  # fmt: skip
_NAMES: dict[object, str] = {open_page: "open"}
"""Commands whose functions have another name: theirs is one of Python's own."""
for command in _COMMANDS:
    app.command(_NAMES.get(command))(command)


def _show_version(asked: bool) -> None:
    if not asked:
        return
    from importlib import metadata

    try:
        version = metadata.version("memplan")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    typer.echo(f"memplan {version}")
    raise typer.Exit


_TAG = re.compile(r"\[(?=[a-z#/@][^\[]*?\])")
"""Where what Rich takes for markup begins (``rich.markup.RE_TAGS``)."""


@cache
def command_line() -> Any:
    """The command line as Click knows it, with help that is text: Typer would let Rich read ``[tool.x]`` as markup.

    Made once: reading the signatures of all commands takes longer than most of them do.
    """
    found: Any = typer.main.get_command(app)
    for command in (found, *found.commands.values()):
        shorten_help(command)
        for each in (command, *command.params):
            each.help = each.help and _TAG.sub(r"\\[", each.help)
    return found


@app.callback()
def _memplan(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True, show_default=False
        ),
    ] = False,
) -> None:
    del version  # Its callback has done everything.


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; None takes those of this process.

    Returns:
        The exit code.
    """
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # It means "not known"; Rich would take it at its word.
    try:
        with hushed():
            code = _run(renamed(sys.argv[1:] if arguments is None else arguments))
        # Newer versions of Typer take Ctrl-C to themselves and say nothing.
        return _fail("interrupted", code) if code == ExitCode.INTERRUPTED else code
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the last line of defence.
        return _told(error)


def _run(arguments: list[str]) -> int:
    """Run a command; one without its target for each that is meant, the worst exit code counting."""
    try:
        return _exit_code(command_line()(args=arguments, prog_name="memplan", standalone_mode=False))
    except _TyperError as error:
        if not bare.lacks_target(error, arguments):
            raise
    return max(map(_run, bare.completed(arguments)))


def _told(error: BaseException) -> int:
    """Tell what ended a command; the exit code that it means."""
    match error:
        case MemplanError():
            code = _fail(str(error), error.exit_code)
        case _TyperError():
            code = _fail(str(_explained(error)), ExitCode.USAGE)
        case KeyboardInterrupt() | typer.Abort():
            code = _fail("interrupted", ExitCode.INTERRUPTED)
        case SystemExit() if not error.code or isinstance(error.__context__, BrokenPipeError):
            # Typer turns a closed pipe into exit 1, which would read as "policy not met".
            code = ExitCode.DONE
        case OSError() if error.filename is not None:
            # Not a defect: a folder that may not be looked into, a link that leads to itself.
            _show_place(error)
            code = _fail(f"'{error.filename}' cannot be used: {error.strerror}", ExitCode.USAGE)
        case _:
            code = _crash(error)
    return code


def _explained(error: Any) -> UsageError:
    """Return a usage error of Typer in the words of all others."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    hint = f"{context.command_path} -h" if context is not None else None
    return UsageError(message[:1].lower() + message[1:].removesuffix("."), hint=hint)


def _exit_code(result: object) -> int:
    return result if isinstance(result, int) else ExitCode.DONE


def _fail(message: str, code: int) -> int:
    console.tell(f"error: {message}\n")
    return code


def _crash(error: BaseException) -> int:
    _show_place(error)
    return _fail(
        f"internal error, please report it: {type(error).__name__}: {error}\n"
        "  hint: MEMPLAN_DEBUG=1 shows where it happened",
        ExitCode.USAGE,
    )


def _show_place(error: BaseException) -> None:
    if os.environ.get("MEMPLAN_DEBUG") == "1":
        sys.excepthook(type(error), error, error.__traceback__)
