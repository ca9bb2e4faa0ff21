"""Exit codes of commands that search: found, proved that there is nothing, or not found (decision 16)."""

from memplan.errors import ExitCode


def exit_code(*, found: bool, was_cut: bool, exit_zero: bool) -> ExitCode:
    """Return the exit code of a search that was reported.

    Args:
        found: Is there an answer?
        was_cut: Did the search end before it was clear that there is none?
        exit_zero: Was ``--exit-zero`` typed?
    """
    if found or exit_zero:
        return ExitCode.DONE
    return ExitCode.NOT_FOUND if was_cut else ExitCode.UNKNOWN
