"""Do the functions of a target file take what memplan will pass them?"""

import inspect
from collections.abc import Callable
from typing import Any

from memplan.errors import UsageError

EXPECTED = {
    "batch": "batch(batch_size) or batch(batch_size, seq_len=None)",
    "loss": "loss(output, batch)",
    "optimizer": "optimizer(parameters)",
    "train_step": "train_step(model, optimizer, batch)",
    "parallelize": "parallelize(model, mesh)",
    "generate": "generate(model, batch)",
}
"""Functions of a target file beside ``model`` → how memplan calls them."""


def accepts(function: Callable[..., object], *args: object, **keywords: object) -> bool:
    """Can the function be called with these arguments? True where Python cannot tell (some C functions)."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*args, **keywords)
    except TypeError:
        return False
    return True


def check_takes(function: Callable[..., object], name: str, count: int, *, where: str) -> None:
    """Check that one of the functions in ``EXPECTED`` takes ``count`` positional arguments.

    Raises:
        UsageError: It does not.
    """
    if not accepts(function, *range(count)):
        raise UsageError(f"{_written(name, function)} cannot be called as {EXPECTED[name]}", where=where)


def uniform_batch(
    function: Callable[..., Any], *, where: str, seq_len: int | None
) -> tuple[Callable[[int, int | None], Any], int | None]:
    """Bring a target's ``batch`` to the one form that memplan calls.

    Args:
        function: As the user wrote it: with or without ``seq_len``, which may have a default.
        where: Where it stands, for errors.
        seq_len: The sequence length that was asked for, if any.

    Returns:
        ``(batch_size, seq_len)`` → batch, and the function's own default sequence length. A ``seq_len`` of None leaves
        the function its own default.

    Raises:
        UsageError: The function takes something else; or it needs a sequence length and none was given; or one was
            given and it takes none.
    """
    if accepts(function, 1, seq_len=1):
        return _with_seq_len(function, where, seq_len)
    if accepts(function, 1):
        if seq_len is not None:
            what = "a sequence length was given, but batch(batch_size) takes none"
            raise UsageError(what, where=where, hint="leave out --seq-len, or let batch take (batch_size, seq_len)")
        return (lambda batch_size, _: function(batch_size)), None
    if accepts(function, 1, 1):
        if seq_len is None:
            raise _needs_seq_len(where)
        return function, None
    raise UsageError(f"{_written('batch', function)} cannot be called as {EXPECTED['batch']}", where=where)


def _with_seq_len(
    function: Callable[..., Any], where: str, seq_len: int | None
) -> tuple[Callable[[int, int | None], Any], int | None]:
    if seq_len is None and not accepts(function, 1):
        raise _needs_seq_len(where)

    def batch(batch_size: int, length: int | None) -> Any:
        return function(batch_size) if length is None else function(batch_size, seq_len=length)

    parameter = inspect.signature(function).parameters.get("seq_len")
    default = parameter.default if parameter is not None else None
    return batch, default if isinstance(default, int) else None


def _needs_seq_len(where: str) -> UsageError:
    return UsageError("batch needs a sequence length", where=where, hint="give one with --seq-len")


def _written(name: str, function: Callable[..., object]) -> str:
    return f"{name}{inspect.signature(function)}"
