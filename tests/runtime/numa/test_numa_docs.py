"""The page's code runs."""

import re
import subprocess
import sys
from pathlib import Path

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
