"""Options under the names that they had before: these work as ever, and a note says what they are called now."""

from collections.abc import Mapping, Sequence

from memplan.cli import console

OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "simulate": {"--conf": "--alloc-conf"},
    "snapshot": {"--conf": "--recorded-conf", "--replay-conf": "--alloc-conf"},
    "recommend": {"--search-budget": "--time-limit"},
    "sweep": {"--search-budget": "--time-limit"},
    "validate": {"--profile-out": "--out"},
    "numa": {"--save": "--out"},
}
"""Command → old name of an option → its name."""


def renamed(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command with its options as they are called now; each other one is told of.

    Args:
        arguments: The command and its options, as typed. What follows ``--`` belongs to another program.
    """
    names = OLD_NAMES.get(arguments[0], {}) if arguments else {}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [word.partition("=") for word in arguments[:end]]
    for old in dict.fromkeys(option for option, _, _ in own if option in names):
        console.tell(f"note: {old} is called {names[old]} now\n")
    return ["".join((names.get(option, option), *rest)) for option, *rest in own] + list(arguments[end:])
