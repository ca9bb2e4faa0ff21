"""The page's code runs, and its table of options is the command's."""

import re
import subprocess
import sys
from pathlib import Path

import typer

from memplan.cli.app import app
from memplan.runtime.numa.topology import this_machine

PAGE = (Path(__file__).parents[3] / "docs" / "numa.md").read_text()


def test_the_code_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "page.py").write_text(code)
    size = min(2, len(this_machine().allowed_cpus))
    environment = {"PATH": "/usr/bin:/bin", "LOCAL_RANK": str(size - 1), "LOCAL_WORLD_SIZE": str(size)}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_every_option_is_in_the_table() -> None:
    command = typer.main.get_command(app).commands["numa"]
    options = {word for parameter in command.params for word in parameter.opts if word.startswith("-")}
    table = {
        word for row in re.findall(r"^\| (`-.*?) \|", PAGE, re.MULTILINE) for word in re.findall(r"`(-[^`]+)`", row)
    }
    assert options - {"--json"} == table
