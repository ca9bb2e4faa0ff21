"""What the user typed as TARGET, read into one of its kinds and written back."""

import contextlib
import difflib
import os
import re
import shlex
import warnings
from pathlib import Path
from typing import assert_never

from memplan.errors import EstimateError, UsageError
from memplan.files.read import read_bytes
from memplan.job.call import parse_call
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, ScriptTarget, Target
from memplan.job.usercode import explain

FORMS = (
    "write model.py, model.py:factory or model.py:Net(dim=512), package.module:factory, hf:DIR (or hf:config.json), "
    "or preset:NAME"
)

_WIDEST_LINE = 72
"""Characters of a line of code that is shown in an error."""

_NOTEBOOK = (
    "in the notebook, put what trains below  with memplan.on('h100-80g'):  ; or make a program of it: "
    "jupyter nbconvert --to script {quoted} && memplan estimate {script}"
)

_NAME = r"[^\W\d]\w*"
_CALL = rf"{_NAME}\s*(?:\(.*\))?"
_FILE = re.compile(rf"(?P<path>.+?\.py)(?:::?(?P<factory>{_CALL}))?", re.DOTALL)
_MODULE = re.compile(rf"(?P<module>{_NAME}(?:\.{_NAME})*)::?(?P<factory>{_CALL})", re.DOTALL)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SCHEME = re.compile(r"(?P<scheme>hf|preset):(?P<rest>.*)", re.DOTALL)


def parse_target(text: str, folder: Path = Path()) -> Target:
    """Read a target.

    Args:
        text: ``model.py``, ``model.py:factory`` (or ``::``, or a call as ``Net(dim=512)``), ``package.module:factory``,
            ``hf:…`` or ``preset:…``; without their prefix a preset's name, a folder with ``config.json``, or
            ``org/name`` where there is no folder ``org``.
        folder: Where its relative paths begin.

    Returns:
        The target. A file exists and can be read; modules, hub names and presets are looked up later.

    Raises:
        UsageError: The text is none of the four forms, or its file is missing (the nearest names are offered).
    """
    text = text.strip()
    if match := _SCHEME.fullmatch(text):
        return _named(match["scheme"], match["rest"].strip(), text, folder)
    if match := _FILE.fullmatch(text):
        factory = _checked_call(match["factory"])
        return FileTarget(path=existing_file(folder / match["path"]), factory=factory)
    if match := _MODULE.fullmatch(text):
        return ModuleTarget(module=match["module"], factory=_checked_call(match["factory"]) or "")
    if (named := _known_by_name(text, folder)) is not None:
        return named
    raise UsageError(f"'{text}' is not a target", hint=_what_was_meant(text))


def format_target(target: Target) -> str:
    """Write a target the way it is typed; ``parse_target`` reads it back."""
    match target:
        case FileTarget(path=path, factory=None):
            return str(path)
        case FileTarget(path=path, factory=factory):
            return f"{path}:{factory}"
        case ModuleTarget(module=module, factory=factory):
            return f"{module}:{factory}"
        case HubTarget(location=location):
            return f"hf:{location}"
        case PresetTarget(name=name):
            return f"preset:{name}"
        case ScriptTarget():
            return shlex.join([target.name, *(("--", *target.arguments) if target.arguments else ())])
    assert_never(target)


def check_syntax(target: Target) -> None:
    """Compile the file of a target: milliseconds, where the process that runs it imports torch for seconds first.

    Raises:
        EstimateError: It is not valid Python; the line is shown.
    """
    path = target.path if isinstance(target, FileTarget | ScriptTarget) else None
    if path is None:
        return
    # What cannot be read or is nested too deeply is told by who runs it.
    with contextlib.suppress(ValueError, RecursionError, MemoryError), warnings.catch_warnings(action="ignore"):
        try:
            compile(read_bytes(path), str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            told = explain(error, path.name)
            raise EstimateError(told.what + _shown(error), where=told.where) from error


def _shown(error: SyntaxError) -> str:
    """The line that is wrong with a mark below, where a terminal has room for it."""
    line = (error.text or "").rstrip()
    code = line.lstrip()
    if not code or not error.offset or len(code) > _WIDEST_LINE:
        return ""
    return f"\n    {code}\n    {' ' * (error.offset - 1 - (len(line) - len(code)))}^"


def _checked_call(text: str | None) -> str | None:
    """The factory as typed, which is a name or a call."""
    if text is not None:
        parse_call(text)
    return text


def _known_by_name(text: str, folder: Path) -> Target | None:
    """A preset, a configuration on this disk, or a name on the hub, typed as it is."""
    from memplan.job.presets.catalog import list_presets

    if text.lower() in {preset.name for preset in list_presets()}:
        return PresetTarget(name=text)
    with contextlib.suppress(OSError, ValueError):  # Not a path that there could be.
        path = folder / text
        if (path.name == "config.json" and path.is_file()) or (path / "config.json").is_file():
            return HubTarget(location=str(path))
        if _HUB_NAME.fullmatch(text) and not path.parent.is_dir():
            return HubTarget(location=text)
    return None


def _named(scheme: str, rest: str, text: str, folder: Path) -> Target:
    if not rest:
        example = "hf:./llama-config" if scheme == "hf" else "preset:llama-3.1-8b"
        raise UsageError(f"'{text}' names nothing after '{scheme}:'", hint=f"for example {example}")
    if scheme == "preset":
        return PresetTarget(name=rest)
    # What is not there is a name on the hub, which belongs to no folder.
    below = os.path.exists(folder / rest)  # noqa: PTH110 - it does not mind names that no file can have.
    return HubTarget(location=str(folder / rest) if below else rest)


def existing_file(path: Path) -> Path:
    """The path of a file that is there and can be read.

    Raises:
        UsageError: It is not, or cannot be; the nearest names are offered.
    """
    try:
        is_file, is_readable = path.is_file(), os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"'{path}' cannot be a file: {reason}", hint=FORMS) from error
    if not is_file:
        raise UsageError(f"there is no file '{path}'", hint=_nearest_files(path))
    if not is_readable:
        raise UsageError(f"'{path}' cannot be read", hint="check its permissions")
    return path


def _nearest_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder '{path.parent}' either; paths start at {Path.cwd()}"
    names = sorted(file.name for file in path.parent.glob("*.py"))
    nearest = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5) or names[:3]
    if not nearest:
        return f"'{path.parent.resolve()}' holds no Python files"
    return "did you mean " + " or ".join(str(path.parent / name) for name in nearest) + "?"


def _what_was_meant(text: str) -> str:
    """A hint for text of no known form: what was probably meant, else the forms."""
    from memplan.job.presets.catalog import list_presets

    if text.endswith(".ipynb"):
        return _NOTEBOOK.format(quoted=shlex.quote(text), script=shlex.quote(f"{Path(text).stem}.py"))
    with contextlib.suppress(OSError, ValueError):  # Not even a path: only the forms can help.
        if text and not text.endswith(".py") and Path(f"{text}.py").is_file():
            return f"did you mean {text}.py?"
    nearest = difflib.get_close_matches(text.lower(), [preset.name for preset in list_presets()], n=3, cutoff=0.6)
    return f"did you mean preset:{' or preset:'.join(nearest)}? 'memplan presets' lists all" if nearest else FORMS
