"""What the user's own code raises, told as one error: what it was doing, where in their file, and what may help."""

import errno
import functools
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar

from memplan.errors import EstimateError, MemplanError
from memplan.job import cuda_extensions
from memplan.job.other_releases import is_there, other_release, statement
from memplan.job.own_packages import lacking

P = ParamSpec("P")
T = TypeVar("T")

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = ("site-packages", "dist-packages")
_BEFORE_PACKAGE = re.compile(rf"^.*({'|'.join(_INSTALLED)})[\\/]")
_LONGEST_MESSAGE = 2000

DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "git": "gitpython",
    "hydra": "hydra-core",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Top-level module → name to install, where they differ (each project's page on PyPI)."""

_HINTS: dict[type[BaseException], str] = {
    SystemExit: 'move what only a script does below  if __name__ == "__main__":',
    EOFError: "there is no terminal to read from while memplan runs the code",
    MemoryError: "build tensors inside model() and batch(), where memplan keeps them from taking memory",
}
"""Hints that need to know no more than the kind of exception."""

_NEEDS_CUDA = (
    "not compiled with CUDA",
    "No CUDA GPUs",
    "no NVIDIA driver",
    "libcuda",
    "CUDA_HOME",
    "libcudart",
    "support for cuda devices",
)
"""Phrases by which torch and CUDA extensions say that they want a GPU or its toolkit."""

LOSS = "loss()"
"""What a target's loss is called where it fails."""
_WHOLE_BATCH = re.compile(r"\b(tuple|list|dict)\b")
_RANKS = "say how many ranks there are: --parallel fsdp1=8, ddp=8 or another; memplan then traces one of them on a GPU"
_PHRASES = {
    "Default process group has not been initialized": _RANKS,
    "FSDP needs a non-CPU accelerator": _RANKS,
    "NCCL": _RANKS,
    'missing the required "forward" function': "write in the file what a step is: train_step(model, optimizer, batch)",
    "'generator' object has no attribute": "optimizer(parameters) is given model.parameters(), not the model",
    **cuda_extensions.PHRASES,
}
"""Hints by phrases of messages of torch and Python."""


@contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Run user code: whatever it raises leaves as an ``EstimateError`` that names the user's own line.

    ``doing`` is the subject of a sentence: ``model()``, ``model.py``.

    Raises:
        EstimateError: For any exception, ``SystemExit`` included. Errors of memplan's own pass through.
    """
    try:
        yield
    except (MemplanError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise explain(error, doing) from error


def guarded(function: Callable[P, T], doing: str) -> Callable[P, T]:
    """The function, with its exceptions told as ``user_code`` tells them."""

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        with user_code(doing):
            return function(*args, **keywords)

    return call


def explain(error: BaseException, doing: str) -> EstimateError:
    """Tell an exception of user code as an error: its type and message, the user's line, and a hint if there is one."""
    where = location(error)
    what = f"{doing} raised {_message(error)}"
    if isinstance(error, SystemExit):
        what = f"{doing} ended the program: sys.exit({error.code!r})"
    elif isinstance(error, SyntaxError) and error.filename:
        what = f"{display(error.filename)} is not valid Python: {error.msg}"
    return EstimateError(what, where=where, hint=_hint_of_loss(error) if doing == LOSS else _hint(error))


def location(error: BaseException) -> str | None:
    """``file:line`` (``:column`` for a syntax error) of the innermost frame that the user can change.

    That is the innermost frame outside of memplan, torch, the standard library and installed packages; where there is
    none, the innermost in an installed package other than torch; None where only memplan and torch were running.
    """
    if isinstance(error, SyntaxError) and error.filename:
        column = f":{error.offset}" if error.offset else ""
        return f"{display(error.filename)}:{error.lineno or 1}{column}"
    return innermost([(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)])


def innermost(frames: Sequence[tuple[str, int]]) -> str | None:
    """The innermost frame (file, line; innermost last) that the user can change, by the rule of ``location``."""
    for is_theirs in (is_user_file, is_foreign):
        for filename, line in reversed(frames):
            if is_theirs(filename):
                return f"{display(filename)}:{line}"
    return None


def told(error: BaseException) -> MemplanError:
    """Any exception as an error of memplan's: its own as they are, those of user code explained, the rest internal."""
    if isinstance(error, MemplanError):
        return error
    if (incomplete := lacking(error, is_foreign)) is not None:
        return incomplete
    if location(error) is not None or isinstance(error, SystemExit | MemoryError):
        return explain(error, "the model's code")
    if what := _world_changed(error):
        return EstimateError(what)
    place = next(reversed([*traceback.walk_tb(error.__traceback__)]), None)
    where = f"{place[0].f_code.co_filename}:{place[1]}" if place else None
    return MemplanError(
        f"internal error: {_message(error)}", where=where, hint="this is a defect of memplan: please report it"
    )


def is_user_file(filename: str) -> bool:
    """Is this source file the user's: neither memplan, nor installed, nor the standard library, nor generated?"""
    return is_foreign(filename) and not any(part in _INSTALLED for part in Path(filename).parts)


def _world_changed(error: BaseException) -> str:
    """What user code has done to the process, so that nothing works any more; empty: nothing that is known."""
    try:
        os.getcwd()  # noqa: PTH109 - what pathlib would ask.
    except OSError:
        return "the model's code has removed the folder that it runs in"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"the model's code has opened all files that a process may have open: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "there is no room left on the disk"
    return ""


def display(filename: str | Path) -> str:
    """A path as a message shows it: relative to the current folder where it lies inside."""
    path = Path(filename)
    try:
        here = Path.cwd()
    except OSError:  # It has been removed.
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def installed_part(source: str) -> str:
    """A source line without where packages are installed: a library's file starts at the library."""
    return _BEFORE_PACKAGE.sub("", source)


@contextmanager
def forgotten_modules() -> Iterator[None]:
    """Forget at the end which of the user's modules were imported, so that the next import runs them anew.

    A module keeps the tensors that it made when imported, and those belong to the trace that was running.
    """
    before = frozenset(sys.modules)
    try:
        yield
    finally:
        # All are found before any goes: a namespace package finds its path by its parent.
        for name in [name for name in sys.modules if name not in before and _is_of_user(sys.modules[name])]:
            del sys.modules[name]


def _is_of_user(module: ModuleType) -> bool:
    """Does a module lie among the user's files? A namespace package has folders only."""
    file = getattr(module, "__file__", None)
    folders = [] if file else [f"{folder}/" for folder in getattr(module, "__path__", ())]
    return any(map(is_user_file, [file] if file else folders))


def is_foreign(filename: str) -> bool:
    """Is it code of neither memplan, torch nor Python itself?"""
    if filename.startswith("<") or any(Path(filename).is_relative_to(folder) for folder in _own_folders()):
        return False
    is_installed = any(part in _INSTALLED for part in Path(filename).parts)
    return is_installed or not Path(filename).is_relative_to(_STANDARD_LIBRARY)


def _own_folders() -> Iterator[Path]:
    """Folders of memplan and torch, wherever they are installed; a torch that is not imported raises nothing."""
    for module in (sys.modules["memplan"], sys.modules.get("torch")):
        if module is not None and module.__file__:
            yield Path(module.__file__).parent


def _message(error: BaseException) -> str:
    # format_exception_only also survives a __str__ that raises, and shows notes.
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, AssertionError) and not error.args:
        # All that it says is what is asserted.
        text += f": {statement(error)}"
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + " …"


def _on_cuda() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        # A trace answers for the GPU that it plays, so that asking guards nothing.
        return "this code calls CUDA past torch's tensors, which no trace can follow: give it a path in plain PyTorch"
    return "this code needs a GPU or the CUDA toolkit: guard it with torch.cuda.is_available()"


def _is_of_hub(error: BaseException) -> bool:
    return type(error).__module__.startswith("huggingface_hub")


def _hint_of_loss(error: BaseException) -> str | None:
    """A loss that takes one part of its batch for the whole of it says so in these words."""
    found = _WHOLE_BATCH.search(str(error)) if isinstance(error, TypeError | AttributeError) else None
    if found is None:
        return _hint(error)
    key = "'labels'" if found[1] == "dict" else 1
    return f"loss(output, batch) is given all that batch() returns, a {found[1]}: take what it needs, as batch[{key}]"


def _hint(error: BaseException) -> str | None:
    text = str(error.args[0]) if error.args else ""
    if any(phrase in text for phrase in _NEEDS_CUDA):
        return _on_cuda()
    for phrase, hint in _PHRASES.items():
        if phrase in text:
            return hint
    if isinstance(error, ModuleNotFoundError) and error.name and not is_there(error.name):
        package = error.name.partition(".")[0]
        install = f"pip install {DISTRIBUTIONS.get(package, package)}, or check that {package} lies beside the file"
        return cuda_extensions.HINTS.get(package, install)
    if isinstance(error, ImportError) and "relative import" in text:
        return "files of a package load by name: write package.module:factory and run from the package's folder"
    if _is_of_hub(error) or isinstance(error, FileNotFoundError):
        fetch = "nothing is downloaded while memplan runs a program: fetch it first (hf download NAME)"
        return fetch if _is_of_hub(error) else f"relative paths start at the folder that memplan runs in, {Path.cwd()}"
    return next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), other_release(error, is_user_file))
