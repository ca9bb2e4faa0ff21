"""The command line: its commands, and how every way to fail becomes an exit code.

A crash never exits 1: that code says "policy not met" and nothing else.
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan.cli import bare, console
from memplan.cli.help import shorten_help
from memplan.cli.old_names import renamed
from memplan.errors import ExitCode, MemplanError, UsageError
from memplan.job.noise import hushed

# The base of Typer's usage errors (bad value < usage error < this). Its home moved in Typer 0.26, its place did not.
if TYPE_CHECKING:
    _TyperError = typer.BadParameter
else:
    _TyperError = typer.BadParameter.__mro__[2]

COMMANDS = (
    "estimate", "checkpoint-plan", "recommend", "batch", "reuse-plan", "graph", "init", "gate", "audit", "diff",
    "report", "open", "sweep", "snapshot", "simulate", "validate", "emit", "formula", "monitor", "gpus", "numa",
    "presets", "explain", "schema", "doctor",
)  # fmt: skip
"""In the order of help; each is a module here, with a function of its name."""
_FUNCTIONS = {"open": "open_page"}
"""Commands whose functions have another name: theirs is one of Python's own."""


def typer_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the command line as its functions declare it, with these commands: importing all takes half a second."""
    app = typer.Typer(
        name="memplan",
        help="Does this PyTorch step fit on that GPU? Plan its memory before renting one.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_memplan)
    for name in commands:
        own = name.replace("-", "_")
        app.command(name)(getattr(import_module(f"memplan.cli.{own}"), _FUNCTIONS.get(name, own)))
    return app


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
def command_line(commands: Sequence[str] = COMMANDS) -> Any:
    """The command line as Click knows it, with help that is text: Typer would let Rich read ``[tool.x]`` as markup.

    Made once: reading the signatures of all commands takes longer than most of them do.
    """
    found: Any = typer.main.get_command(typer_app(commands))
    for command in (found, *found.commands.values()):
        shorten_help(command)
        for each in (command, *command.params):
            each.help = each.help and _TAG.sub(r"\\[", each.help)
    return found


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
    # A word that is none of the commands may be meant for one of them.
    commands = tuple(arguments[:1]) if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
    try:
        return _exit_code(command_line(commands)(args=arguments, prog_name="memplan", standalone_mode=False))
    except _TyperError as error:
        if not bare.lacks_target(error, arguments):
            raise
    return max(map(_run, bare.completed(arguments)))


def _told(error: BaseException) -> int:
    """Tell what ended a command; the exit code that it means."""
    match error:
        case MemplanError():
            code = _fail(str(error), error.exit_code)
        case ModuleNotFoundError() if (incomplete := _incomplete(error)) is not None:
            code = _fail(str(incomplete), incomplete.exit_code)
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


def _incomplete(error: ModuleNotFoundError) -> MemplanError | None:
    """Return what memplan's own installation lacks, if it is that."""
    from memplan.job.own_packages import lacking
    from memplan.job.usercode import is_foreign

    return lacking(error, is_foreign)


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
