"""``memplan numa`` from the outside: other machines' trees, its formats, its complaints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main
from tests.contract.goldens import obey
from tests.runtime.numa.machines import DGX_H100, EPYC_7251, build


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numa", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    obey("numa", content)
    ranks = content["placement"]["ranks"]
    assert {cpu for rank in ranks for cpu in rank["cpus"]} == os.sched_getaffinity(0)


def test_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # Of this machine, and of no other one.
    root = str(build(tmp_path, DGX_H100))
    assert main(["numa", "--sysfs", root, "--ranks", "2", "--pinned-per-rank", "8GiB", "--", "python", "a b.py"]) == 0
    out = capsys.readouterr().out
    assert "8 GPUs" in out
    assert "2 of 2 ranks on their GPU's node" in out
    assert "'a b.py'" in out


def test_all_formats(tmp_path: Path) -> None:
    root = str(build(tmp_path / "machine", EPYC_7251))
    files = [tmp_path / name for name in ("a.txt", "a.json", "a.sh")]
    words = [
        word for file, form in zip(files, ("text", "json", "sh"), strict=True) for word in ("-f", f"{form}={file}")
    ]
    assert main(["numa", "--sysfs", root, "--ranks", "4", "--strict", *words]) == 0
    assert "--membind=3" in files[0].read_text()
    assert len(json.loads(files[1].read_text())["placement"]["ranks"]) == 4
    assert files[2].read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(files[2])], check=True)


def test_saved_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numa", "--out", str(tmp_path / "saved"), "--ranks", "1", "-q"]) == 0
    first = capsys.readouterr().out
    assert main(["numa", "--sysfs", str(tmp_path / "saved"), "--ranks", "1", "-q"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "0", "--workers", "-1"], ["--ranks must be between 1", "--workers must be between 0"]),
        (["--pinned-per-rank", "much"], ["--pinned-per-rank: 'much' is not a size"]),
        (["--sysfs", "nowhere"], ["no sys/devices/system in 'nowhere'", "--out"]),
        (["--ranks", "100000"], ["100000 ranks do not fit on the", "at most"]),
        (["-f", "yaml"], ["--format must be one of text, json, sh"]),
        (["--out", __file__], ["is not a folder"]),
        (["-f", "json", "-f", "sh"], ["only one report can go to standard output"]),
    ],
)
def test_wrong_options(words: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numa", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(part in captured.err for part in said)


def test_the_command_is_light() -> None:
    code = (
        "import sys\nfrom memplan.cli.app import main\n"
        "main(['numa', '-q'])\nmain(['numa', '--json'])\n"
        "heavy = {'torch', 'numpy', 'networkx', 'pulp'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
