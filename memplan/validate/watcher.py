"""What a CUDA device has left before a process creates its context there. Torch-free: a child process looks."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator

WATCHER_SECONDS = 120.0
"""How long the watcher may take to create its context; a cold start from a network disk takes most of a minute."""
_WATCHER = (
    "import sys, torch; device = int(sys.argv[1]); torch.cuda.set_device(device); torch.cuda.synchronize(); "
    "print(torch.cuda.mem_get_info(device)[0], flush=True); sys.stdin.read()"
)
"""Creates a context, says how much the device has left, and keeps the context until its input ends."""


@contextlib.contextmanager
def free_before(device: int) -> Iterator[int | None]:
    """How many bytes the device has left before this process creates its context; None where nobody can tell.

    Only a process with a context can ask, so another one does; its own context lives as long as this one's figures
    are compared with its answer, and cancels out.
    """
    watcher = subprocess.Popen(  # noqa: S603 - our own interpreter.
        [sys.executable, "-c", _WATCHER, str(device)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _answer(watcher)
    finally:
        watcher.kill()
        watcher.communicate()


def _answer(watcher: "subprocess.Popen[str]") -> int | None:
    assert watcher.stdout is not None  # noqa: S101 - it is a pipe.
    # A watcher that hangs is killed, which ends the wait for its line.
    timer = threading.Timer(WATCHER_SECONDS, watcher.kill)
    timer.start()
    try:
        line = watcher.stdout.readline().strip()
    finally:
        timer.cancel()
    return int(line) if line.isdigit() else None
