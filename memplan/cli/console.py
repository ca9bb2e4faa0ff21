"""Where output goes: results to standard output, progress and errors to standard error."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, TextIO

from memplan.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PLAIN_WIDTH = 80
"""Cells per line of a report that does not go to a terminal."""
_LAST_WORDS = 1.0
"""Seconds that what was printed at the end may take to be shown."""
# What stands in for the report's symbols where the output's encoding has none of them.
_ASCII = str.maketrans("✓✗·→…█▏▎▍▌▋▊▉░▁▂▃▄▅▆▇�", "+x->~#....###.___==##?")


def write_plain(text: str, file: TextIO | None = None) -> None:
    """Write text as it is, or as far as the stream's encoding goes.

    A reader that has gone away (``| head``) ends the output, not the command.

    Raises:
        UsageError: It cannot be written: the disk is full, or so.
    """
    stream = file or sys.stdout
    if stream is None:  # Python's word for a standard output that was closed before it began.
        return
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(_encodable(text, stream.encoding))
        stream.flush()
    except OSError as error:
        # The interpreter flushes once more at exit; what is left then goes nowhere, without a complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UsageError(f"cannot write the output: {error.strerror}") from error


def tell(text: str) -> None:
    """Write to standard error, in lines that a terminal has room for; what is kept in a file is not broken.

    What stands in the text from outside commands no terminal.
    """
    from memplan.text import clean, folded

    width = _width(sys.stderr, elsewhere=sys.maxsize)
    # Whoever cannot be told still gets the exit code.
    with suppress(UsageError):
        write_plain("\n".join(folded(clean(line), width) for line in text.split("\n")), sys.stderr)


def write_lines(lines: Iterable["Text"], file: TextIO | None = None) -> None:
    """Write styled lines, one per line of output: coloured on a terminal that has colour, plain elsewhere."""
    from rich.console import Console

    stream = file or sys.stdout
    console = Console(file=stream, highlight=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line, no_wrap=True, overflow="ignore", crop=console.is_terminal)
    write_plain(captured.get(), stream)


def terminal_width() -> int:
    """Cells per line of standard output: the terminal's, or 80 elsewhere; ``COLUMNS`` overrides both."""
    return _width(sys.stdout, elsewhere=PLAIN_WIDTH)


def _width(stream: TextIO | None, *, elsewhere: int) -> int:
    from rich.console import Console

    console = Console(file=stream)
    return console.width if console.is_terminal or "COLUMNS" in os.environ else elsewhere


@contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """Show what is going on while it goes on, on a terminal's standard error, and take it away; elsewhere nothing.

    Yields:
        What to call with a phase's name, or None where nobody watches.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.text import Text

    with _printed_above(sys.stderr) as console, console.status("starting") as status:
        yield lambda phase: status.update(Text(phase))


@contextmanager
def _printed_above(stream: TextIO) -> Iterator["Console"]:
    """Open a console at the terminal behind a stream.

    What is written to the stream meanwhile, by the user's code in child processes too, comes above the console's line.
    """
    from rich.console import Console

    try:
        number = stream.fileno()
    except OSError:  # Then no process can write to it.
        yield Console(file=stream)
        return
    reading, writing = os.pipe()
    with os.fdopen(os.dup(number), "w", encoding=stream.encoding) as terminal:
        console = Console(file=terminal)
        relay = Thread(target=_relay, args=(reading, console), daemon=True)
        relay.start()
        os.dup2(writing, number)
        os.close(writing)
        try:
            yield console
        finally:
            os.dup2(terminal.fileno(), number)
            relay.join(_LAST_WORDS)


def _relay(reading: int, console: "Console") -> None:
    from memplan.text import clean

    # ValueError: the terminal is closed again, and a process that outlives its command still writes.
    with suppress(ValueError), os.fdopen(reading, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            # Of a bar that is drawn again and again in one line, the last.
            console.out(clean(line.rstrip("\r\n").rpartition("\r")[2]), highlight=False)


def _encodable(text: str, encoding: str) -> str:
    return text.translate(_ASCII).encode(encoding, errors="replace").decode(encoding)
