"""What a job reads is noticed: every file whose content decides the figures."""

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.job.imports import import_file
from memplan.job.isolate import run_isolated
from memplan.job.reads import Reads, record_reads

pytestmark = pytest.mark.usefixtures("fresh_children")  # What an interpreter reads when it starts is part of it.

USER_CODE = """
import os, json
from pathlib import Path
import helper
try:
    import settings
except ImportError:
    pass
try:
    open("missing.json")
except OSError:
    pass
json.loads(Path("sizes.json").read_text())
os.getenv("WIDTH", "1"), "DEPTH" in os.environ, os.environ.get("HEIGHT")
Path("written.txt").write_text("x")
Path("written.txt").read_text()
"""


def in_child(folder: str) -> Reads | None:
    os.chdir(folder)
    reads = record_reads()
    import_file(Path("model.py"))
    shutil.which("a-library-asks-for-PATH")
    return reads()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(USER_CODE)
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "sizes.json").write_text("{}")
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    return tmp_path


@pytest.mark.parametrize("compiled", [False, True], ids=["source", "compiled"])
def test_files_and_variables_that_the_users_code_reads(folder: Path, compiled: bool) -> None:
    if compiled:  # Python itself would then open the compiled file alone.
        py_compile.compile(str(folder / "helper.py"), doraise=True)
    found = run_isolated(in_child, str(folder), timeout=60)
    inside = {Path(path).relative_to(folder).as_posix(): digest for path, digest in found.files.items()
              if Path(path).is_relative_to(folder)}  # fmt: skip
    assert {name for name, digest in inside.items() if digest} == {"model.py", "helper.py", "sizes.json"}
    assert {"missing.json", "settings.py", "settings/__init__.py"} <= inside.keys()
    assert found.environment.keys() == {"WIDTH", "DEPTH", "HEIGHT"}
    assert not any("site-packages" in path for path in found.files)


def changed_by_another(folder: str) -> Reads | None:
    os.chdir(folder)
    reads = record_reads()
    import_file(Path("model.py"))
    subprocess.run([sys.executable, "-c", "open('sizes.json', 'w').write('[]')"], check=True)
    return reads()


def test_a_file_that_changes_meanwhile_makes_the_outcome_nobodys(folder: Path) -> None:
    assert run_isolated(changed_by_another, str(folder), timeout=60) is None


HOOK = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "settings":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Finder())
"""


def test_an_import_hook_that_raises_is_no_error(folder: Path) -> None:
    (folder / "model.py").write_text(HOOK + USER_CODE)
    os.utime(folder / "model.py", (1, 1))
    reads = run_isolated(in_child, str(folder), timeout=60)
    assert reads is not None
    assert reads.files[str(folder / "settings.py")] == ""
