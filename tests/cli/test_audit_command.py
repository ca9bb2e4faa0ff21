"""``memplan audit`` as users type it: exit codes, options, and every format at once."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.findings.rules import AUDIT
from tests.support.light import light

ROOT = Path(__file__).parents[2]
LEAK = (
    "import torch\nimport torch.nn.functional as F\n\n\ndef train(model, loader, optimizer):\n    total = 0\n"
    "    for x in loader:\n        loss = F.mse_loss(model(x), x)\n        loss.backward()\n        optimizer.step()\n"
    "        total += loss\n    return total\n\n\nmodel = torch.nn.DataParallel(torch.nn.Linear(1, 1))\n"
)
CLEAN = LEAK.replace("+= loss", "+= loss.detach()").split("\n\n\nmodel")[0] + "\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(LEAK)
    (tmp_path / "clean.py").write_text(CLEAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0), (["--fail-on", "high"], 1), (["--fail-on", "low"], 1), (["clean.py", "--fail-on", "low"], 0),
        (["--ignore", "MA001", "--fail-on", "high"], 0), (["--ignore", "MA001", "--fail-on", "low"], 1),
        (["--select", "MA04", "--fail-on", "high"], 0), (["--exclude", "train.py", "--fail-on", "low"], 0),
        (["--severity", "high", "--ignore", "MA001", "--fail-on", "low"], 0),
    ],
)  # fmt: skip
def test_exit_codes(project: Path, words: list[str], code: int) -> None:
    assert main(["audit", *words, "--jobs", "1"]) == code


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.py"], "there is no file or folder 'nothing.py'"),
        (["--fail-on", "dreadful"], "--fail-on must be one of high, medium, low"),
        (["--severity", "dreadful"], "--severity must be one of"),
        (["--select", "E501"], "--select E501: no rule of the audit begins so"),
        (["--ignore", "MA"], "leave no rule"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["-f", "xml"], "--format must be one of text, json"),
        (["-f", "json=a", "-f", "sarif=a"], "two reports would be written to one file"),
    ],
)
def test_wrong_usage(project: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *words]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_all_that_is_wrong_is_told_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "gone.py", "--jobs", "0", "--select", "X"]) == 2
    assert capsys.readouterr().err.count("\n  - ") == 3


def test_a_folder_without_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path)]) == 2
    assert "there is no Python file or notebook" in capsys.readouterr().err


def test_the_report_says_what_where_and_what_to_do(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--diff"]) == 0
    out = capsys.readouterr().out
    assert "MA001  train.py:11:9                                                        high" in out
    assert "   11 │ total += loss" in out
    [shown] = re.findall(r"^```\n(MA001.*?)^```", (ROOT / "docs" / "audit.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown in out
    assert "+        total += loss.detach()" in out
    assert out.splitlines()[-1].startswith("✗ 2 findings: 1 high, 1 low")
    assert max(map(len, out.splitlines())) <= 80


def test_every_format_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".git").mkdir()
    words = [word for name in ("json", "sarif", "gitlab", "markdown") for word in ("-f", f"{name}={name}.out")]
    assert main(["audit", "-f", "text", "-f", "github", *words]) == 0
    out = capsys.readouterr().out
    assert "::error file=train.py,line=11,endLine=11,title=MA001" in out
    report = json.loads((project / "json.out").read_text())
    assert report["summary"]["findings"] == {"high": 1, "medium": 0, "low": 1}
    assert [rule["code"] for rule in report["rules"]] == list(AUDIT)
    assert json.loads((project / "sarif.out").read_text())["runs"][0]["results"]
    assert len(json.loads((project / "gitlab.out").read_text())) == 2
    assert (project / "markdown.out").read_text().startswith("<!-- memplan:audit -->")


def test_files_are_named_from_the_root_of_the_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".git").mkdir()
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert main(["audit", "../train.py", "-f", "gitlab", "--select", "MA001"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["location"]["path"] == "train.py"


def test_explain_knows_the_rules_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ma001"]) == 0
    out = capsys.readouterr().out
    assert "running total keeps every step's graph" in out
    assert "loss.detach()" in out
    assert main(["explain"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} >= set(AUDIT)


def test_a_program_of_one_s_own_can_use_several_processes(project: Path) -> None:
    for number in range(250):
        (project / f"copy_{number}.py").write_text(CLEAN)
    done = subprocess.run(
        [sys.executable, "-m", "memplan", "audit", "--jobs", "2", "-q"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 high" in done.stdout.splitlines()[-1]


def test_it_imports_nothing_heavy(project: Path) -> None:
    (done,) = light(("audit", str(project), "-f", "text", "-f", f"sarif={project}/out", "-f", f"json={project}/report"))
    assert done.returncode == 0, done.stderr
    assert "1 high" in done.stdout
