"""``-h`` and ``--help`` show the options that most people need, ``--help-all`` every one."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from memplan.job.options import OPTIONS

HELP = ["-h", "--help"]
MANY = 20
"""From so many options on, a command shows the basic ones alone."""
BASIC = frozenset({"batch_size", "seq_len", "precision", "optimizer", "grad_accum", "checkpoint", "parallel", "lora"})
"""Options of a job that ``--help`` shows."""
RARE = frozenset(
    {
        "config", "timeout", "file_kind", "profile_dir", "cache_dir", "no_cache", "as_json", "quiet", "exit_zero",
        "alloc_conf", "redact", "timeline", "plot", "alpha", "beta", "noise_scale", "step_time", "target_batch",
        "host_memory", "utilization", "jobs", "keep_snapshot", "force", "seed", "blocks", "code",
    }
)  # fmt: skip
"""Options beside a job's that it does not."""


def shorten_help(command: Any) -> None:
    """Let a command with many options show the basic ones, and give it ``--help-all``.

    Args:
        command: As Click knows it. Hidden options work as others do.
    """
    command.context_settings = {**command.context_settings, "help_option_names": HELP}
    for option in command.params:
        if getattr(option, "is_flag", False):
            option.metavar = ""  # It takes no value: newer versions of Typer would show <bool>.
        if option.param_type_name == "argument":
            option.display_type_rich = _nothing  # They would show <list[str]> behind TARGET.
    command.get_help_option = _without_metavar(command.get_help_option)
    rare = [option for option in command.params if _is_rare(option)]
    if len(command.params) < MANY or not rare:
        return
    for option in rare:
        option.hidden = True
    command.epilog = f"{len(rare)} further options: memplan {command.name} --help-all"
    command.params.append(_help_all(rare))


def _nothing(ctx: Any) -> None:
    del ctx


def _without_metavar(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Say the same of ``--help``, which a command makes when it is asked for."""

    def found(context: Any) -> Any:
        option = find(context)
        if option is not None:
            option.metavar = ""
        return option

    return found


def _is_rare(option: Any) -> bool:
    return option.name in RARE or (option.name in OPTIONS and option.name not in BASIC)


def _help_all(rare: list[Any]) -> Any:
    """The option as Click knows it, which only Typer can make: one that looks at the context of its command."""

    def show(context: typer.Context, asked: bool) -> None:
        if not asked or context.resilient_parsing:
            return
        for option in rare:
            option.hidden = False
        told, context.command.epilog = context.command.epilog, None
        typer.echo(context.get_help())
        context.command.epilog = told
        for option in rare:
            option.hidden = True
        raise typer.Exit

    described = typer.Option(
        "--help-all", help="Show every option and exit.", is_eager=True, expose_value=False, callback=show, metavar="",
        show_default=False,
    )  # fmt: skip
    maker = typer.Typer(add_completion=False)

    @maker.command()
    def with_option(*, asked: Annotated[bool, described] = False) -> None: ...

    made: Any = typer.main.get_command(maker)
    return made.params[0]
