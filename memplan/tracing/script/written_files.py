"""Files and folders that a program makes: they lie in a scratch folder, and it finds them under the names it gave.

As an overlay file system has it: what lies in the scratch folder hides what has the same name on the disk, folders have
what both have, and the disk itself is read only.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LOOKS = ("stat", "lstat", "statvfs", "access", "readlink", "chdir", "utime", "chmod", "truncate", "getxattr",
          "setxattr", "listxattr", "removexattr")  # fmt: skip
"""Functions of ``os`` that take one path, and do the same with the file that it stands for."""
_REMOVES = ("remove", "unlink", "rmdir")


class WrittenFiles:
    """Stand-ins of functions of ``os``, ``open`` and ``shutil.rmtree``.

    Args:
        scratch: A folder of which everything may change.
        trusted: While it is entered, whatever is deleted may be.
    """

    def __init__(self, scratch: Path, trusted: Callable[[], AbstractContextManager[object]]) -> None:
        self._scratch, self._root = str(scratch), str(scratch / "written")
        self._trusted = trusted
        self._open = open
        self._os = {name: getattr(os, name) for name in dir(os) if callable(getattr(os, name))}
        self._rmtree = shutil.rmtree
        self._os["mkdir"](self._root)

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What stands for functions of ``os``, by name."""
        table: dict[str, Callable[..., Any]] = {
            name: self._at_place(self._os[name], self._seen) for name in _LOOKS if name in self._os
        }
        table |= {name: self._at_place(self._os[name], self._own) for name in _REMOVES}
        table |= {name: self._renaming(self._os[name]) for name in ("rename", "replace")}
        table |= {"open": self.open_number, "mkdir": self.mkdir, "listdir": self.listdir, "scandir": self.scandir}
        table |= {"link": self.link, "symlink": self.symlink}
        return table

    # ------------------------------------------------------------------ where files lie

    def _is_other(self, path: Any) -> bool:
        """Is it no name of a file that could hide another one: an open file, a device, a temporary file?"""
        if not isinstance(path, str | bytes | os.PathLike):
            return True
        name = absolute(path)
        return name.startswith("/dev/") or (is_below(name, self._scratch) and not is_below(name, self._root))

    def _name(self, path: Any) -> str:
        """The absolute name by which a program knows a file."""
        name = absolute(path)
        return (name[len(self._root) :] or "/") if is_below(name, self._root) else name

    def _place(self, path: Any) -> str:
        """Where a file lies that the program makes under this name."""
        return path if self._is_other(path) else self._root + self._name(path)

    def _on_disk(self, path: Any) -> Any:
        """Where a file of this name lies, if the program has not written it."""
        return self._name(path) if is_below(absolute(path), self._root) else path

    def _is_there(self, place: Any) -> bool:
        try:
            self._os["lstat"](place)
        except OSError:
            return False
        return True

    def _seen(self, path: Any) -> Any:
        """What a path stands for."""
        if self._is_other(path):
            return path
        place = self._place(path)
        return place if self._is_there(place) else self._on_disk(path)

    def _own(self, path: Any) -> Any:
        """The same, of what may be removed: where the disk has something of that name, that."""
        return path if self._is_other(path) or self._is_there(self._on_disk(path)) else self._seen(path)

    def _at_place(self, real: Callable[..., Any], place: Callable[[Any], Any]) -> Callable[..., Any]:
        def function(path: Any, *args: Any, **options: Any) -> Any:
            at = path if options.get("dir_fd") is not None else place(path)
            return real(at, *args, **options)

        return function

    # ------------------------------------------------------------------ writing

    def open(self, file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        """``open``."""
        if set(mode) & set("wax+"):
            return self._open(self._to_write(file, keeps=bool(set(mode) & set("rax"))), mode, *args, **options)
        return self._open(self._seen(file), mode, *args, **options)

    def open_number(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """``os.open``."""
        if dir_fd is None:
            path = self._to_write(path, keeps=not flags & os.O_TRUNC) if flags & WRITES else self._seen(path)
        number: int = self._os["open"](path, flags, mode, dir_fd=dir_fd)
        return number

    def _to_write(self, path: Any, *, keeps: bool = False) -> Any:
        """Where a file lies that is written; what is kept of one on the disk is copied."""
        if self._is_other(path):
            return path
        place, name = self._place(path), self._name(path)
        self._make(str(Path(place).parent))
        if keeps and not self._is_there(place) and Path(name).is_file():
            with self._open(name, "rb") as before, self._open(place, "wb") as after:
                shutil.copyfileobj(before, after)
        return place

    def _make(self, folder: str) -> None:
        if not self._is_there(folder):
            self._make(str(Path(folder).parent))
            self._os["mkdir"](folder)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """``os.mkdir``."""
        if dir_fd is not None or self._is_other(path):
            self._os["mkdir"](path, mode, dir_fd=dir_fd)
            return
        name = self._name(path)
        if self._is_there(self._seen(name)):
            raise FileExistsError(17, os.strerror(17), path)
        if not self._is_there(self._seen(str(Path(name).parent))):
            raise FileNotFoundError(2, os.strerror(2), path)
        self._make(self._place(name))

    # ------------------------------------------------------------------ what was written

    def listdir(self, path: Any = ".") -> list[Any]:
        """``os.listdir``."""
        if isinstance(path, int):
            return list(self._os["listdir"](path))
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    def scandir(self, path: Any = ".") -> Any:
        """``os.scandir``: what is on the disk, and what was written."""
        if self._is_other(path):
            return self._os["scandir"](path)
        entries: dict[Any, Any] = {}
        disk, place = self._on_disk(path), self._place(path)
        made = [os.fsencode(place) if isinstance(path, bytes) else place] if self._is_there(place) else []
        for folder in (disk, *made) if not made or self._is_there(disk) else made:
            with self._os["scandir"](folder) as there:
                entries |= {entry.name: entry for entry in there}
        return _Entries(iter(entries.values()))

    def _renaming(self, real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: Any, target: Any, **options: Any) -> None:
            at = self._own(source)
            real(at, self._to_write(target) if self._is_scratch(at) else target, **options)

        return rename

    def link(self, source: Any, target: Any, **options: Any) -> None:
        """``os.link``."""
        at = self._seen(source)
        self._os["link"](at, self._to_write(target) if self._is_scratch(at) else target, **options)

    def symlink(self, source: Any, target: Any, *args: Any, **options: Any) -> None:
        """``os.symlink``, whose source is where it would be from the target's folder."""
        at = self._seen(Path(self._name(target)).parent / os.fsdecode(source))
        if self._is_scratch(at):
            self._os["symlink"](at, self._to_write(target), *args, **options)
        else:
            self._os["symlink"](source, target, *args, **options)

    def rmtree(self, path: Any, *args: Any, **options: Any) -> None:
        """``shutil.rmtree``."""
        at = self._own(path)
        if not self._is_scratch(at):
            self._rmtree(path, *args, **options)
            return
        with self._trusted():
            self._rmtree(at, *args, **options)

    def _is_scratch(self, path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and is_below(absolute(path), self._scratch)


class _Entries:
    """What ``os.scandir`` returns."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""


def absolute(path: Any) -> str:
    """A path without ``..``."""
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - the path need not exist.


def is_below(name: str, folder: str) -> bool:
    """Is an absolute path that folder's or one in it?"""
    return name == folder or name.startswith(f"{folder}/")
