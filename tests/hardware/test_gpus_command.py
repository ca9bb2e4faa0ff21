"""``memplan gpus`` through a real Typer application."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from memplan.cli.gpus import gpus
from memplan.errors import UsageError
from memplan.hardware.catalog import list_profiles, load_profile
from memplan.report.gpus import render_list, render_one

APP = typer.Typer()
APP.command()(gpus)
REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    lines = [line for profile in list_profiles() for line in render_one(profile, width=width)]
    lines += render_list(list_profiles(), width=width)
    assert max(cell_len(line.plain) for line in lines) <= width


def test_the_list_has_one_line_per_profile() -> None:
    rows = run().splitlines()
    assert [row.split()[0] for row in rows[1:-1]] == [profile.name for profile in list_profiles()]


def test_a_row_of_the_list() -> None:
    row = next(row for row in run().splitlines() if row.startswith("h100-80g "))
    # 85,017,493,504 B are 79.18 GiB, 85,014,085,632 of them usable; 3.35 TB/s; 989.4 TFLOP/s; capability 9.0.
    assert row.split() == ["h100-80g", "79.18", "79.18", "3350", "989.4", "9.0", "H100", "SXM5", "80GB"]


def test_one_profile_with_its_sources() -> None:
    shown = run("Tesla T4")
    assert "t4 · NVIDIA T4" in shown
    assert "14.56 GiB (15,636,365,312 B)" in shown
    assert "7.5" in shown
    words = " ".join(shown.split())
    assert all(" ".join(source.split()) in words for source in load_profile("t4").sources.values())


def test_json_holds_every_field() -> None:
    document = json.loads(run("--json"))
    assert (document["schema_version"], document["command"]) == ("1.0", "gpus")
    assert [entry["name"] for entry in document["gpus"]] == [profile.name for profile in list_profiles()]
    (h100,) = json.loads(run("h100", "--json"))["gpus"]
    assert h100["total_bytes"] == 85_017_493_504
    assert h100["compute_capability"] == [9, 0]
    assert "total_bytes" in h100["sources"]


def test_a_profile_folder_is_searched(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "t4"\ntitle = "A card \\u202e of mine"\n')
    assert "\nmine " in run("--profile-dir", str(tmp_path))
    # A direction mark in somebody's file must not reorder the terminal's line.
    assert "\u202e" not in run("mine", "--profile-dir", str(tmp_path))


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown GPU 'h10'"):
        run("h10")


def test_the_command_does_not_import_torch() -> None:
    script = (
        "import sys; from memplan.cli.gpus import gpus; gpus(); gpus('h100', as_json=True);"
        "sys.stderr.write(str('torch' in sys.modules))"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stderr == "False"
