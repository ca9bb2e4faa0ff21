"""``memplan monitor`` as people type it: exit codes, where output goes, the terminal, servers."""

import fcntl
import json
import os
import pty
import re
import socket
import struct
import sys
import termios
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.cli.monitor_display import BottomRows
from tests.support.light import light

PYTHON = sys.executable
COUNT = "for i in range(12): print('line', i, flush=True); import time; time.sleep(0.05)"


def monitor(*arguments: str) -> int:
    return main(["monitor", "--interval", "0.05s", *arguments])


@pytest.mark.parametrize("code", [0, 1, 2, 5])
def test_the_exit_code_is_the_commands(code: int) -> None:
    assert monitor("-q", "--", PYTHON, "-c", f"raise SystemExit({code})") == code


def test_a_full_disk_ends_the_log_and_not_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert monitor("--log", "/dev/full", "--", PYTHON, "-c", "raise SystemExit(7)") == 7
    told = capfd.readouterr().err
    assert "the log '/dev/full' ends early: No space left on device" in told
    assert told.splitlines()[-1].startswith("✗ FAILED")


def test_a_signal_is_128_and_its_number() -> None:
    assert monitor("-q", "--", PYTHON, "-c", "import os; os.kill(os.getpid(), 15)") == 143


def test_standard_output_is_the_commands_alone(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    code = "import sys; print('out'); print('err', file=sys.stderr); print(sys.stdin.read(), end='')"
    assert monitor("-f", f"json={report}", "-f", "text", "--", PYTHON, "-c", code) == 0
    captured = capfd.readouterr()
    assert captured.out == "out\n"
    assert captured.err.startswith("err\n")
    assert captured.err.splitlines()[-1].startswith("✓ ENDED · exit 0")
    assert json.loads(report.read_text())["ending"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--"], "a command is missing"),
        (["--interval", "0", "--", "true"], "--interval"),
        (["--levels", "90,80,70", "--", "true"], "--levels"),
        (["--levels", "a", "--", "true"], "--levels"),
        (["--fail-on", "oom", "--", "true"], "--fail-on"),
        (["--prometheus", "here", "--", "true"], "--prometheus"),
        (["--web", "h:70000", "--", "true"], "--web"),
        (["--plan", "no.json", "--", "true"], "the plan cannot be read"),
        (["--snapshots", "/no/folder", "--", "true"], "--snapshots"),
        (["--outside", "--count-cpu", "--", "true"], "--count-cpu"),
        (["-f", "json", "--", "true"], "needs a file"),
        (["--log", "/no/folder/log", "--", "true"], "cannot write"),
        (["--", "no-such-program"], "cannot run"),
    ],
)
def test_wrong_options_are_told_and_nothing_runs(
    arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["monitor", *arguments]) == 2
    assert says in capfd.readouterr().err


def test_all_wrong_options_are_told_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--levels", "x", "--web", "y", "--fail-on", "z"]) == 2
    said = capfd.readouterr().err
    assert all(word in said for word in ("--levels", "--web", "--fail-on", "a command is missing"))


def test_levels_are_told_as_they_change_and_may_fail(capfd: pytest.CaptureFixture[str]) -> None:
    """The machine that this runs on uses more than a millionth of its memory."""
    arguments = ("--levels", "0.0001,0.0002,100", "--", PYTHON, "-c", "import time; time.sleep(0.5)")
    assert monitor("-q", *arguments) == 0
    assert re.search(r"^memplan: memory critical after 0 s: the host has", capfd.readouterr().err, re.MULTILINE)
    assert monitor("-q", "--fail-on", "warning", *arguments) == 1
    assert monitor("-q", "--fail-on", "emergency", *arguments) == 0
    assert monitor("-q", "--fail-on", "warning", *arguments[:2], "--", PYTHON, "-c", "raise SystemExit(4)") == 4


def test_metrics_are_served_while_the_command_runs(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client")
    code = (
        "import os, sys, time, urllib.request\n"
        "time.sleep(0.5)\n"
        f"print(urllib.request.urlopen('http://127.0.0.1:{_free_port()}/metrics').read().decode())"
    )
    port = re.search(r":(\d+)/metrics", code)
    assert port is not None
    assert monitor("-q", "--prometheus", f"127.0.0.1:{port[1]}", "--job", "mine", "--", PYTHON, "-c", code) == 0
    captured = capfd.readouterr()
    assert "memplan_" in captured.out
    assert 'job="mine"' in captured.out
    assert f"http://127.0.0.1:{port[1]}" in captured.err


def test_a_page_is_served_while_the_command_runs(capfd: pytest.CaptureFixture[str]) -> None:
    port = _free_port()
    code = (
        "import time, urllib.request\n"
        "time.sleep(0.5)\n"
        f"print(urllib.request.urlopen('http://127.0.0.1:{port}/').read().decode()[:15])"
    )
    assert monitor("-q", "--web", f"127.0.0.1:{port}", "--", PYTHON, "-c", code) == 0
    assert capfd.readouterr().out.lower().startswith("<!doctype html>")


def test_watching_needs_no_torch() -> None:
    for done in light(("monitor", "--help"), ("monitor", "-q", "--", "true")):
        assert done.returncode == 0, done.stderr


def test_findings_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "mm104"]) == 0
    assert "MM104  host allocation refused" in capsys.readouterr().out


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _in_terminal(*arguments: str, rows: int = 24) -> str:
    """All that a terminal of 80 columns is sent."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "80"}
        os.execv(PYTHON, [PYTHON, "-m", "memplan", "monitor", "--interval", "0.05s", *arguments])
    sent = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not data:
            break
        sent += data
    os.waitpid(pid, 0)
    os.close(terminal)
    return sent.decode()


def test_a_live_view_loses_nothing_of_the_commands_output() -> None:
    sent = _in_terminal("-f", "text=/dev/null", "--", PYTHON, "-c", COUNT)
    ours = re.findall(r"\x1b7.*?\x1b8", sent, re.DOTALL)
    assert sum("memplan" in block for block in ours) >= 3
    theirs = re.sub(r"\x1b7.*?\x1b8", "", sent, flags=re.DOTALL)
    expected = "".join(f"line {number}\r\n" for number in range(12))
    assert theirs == "\r\n" * 4 + "\x1b[4A" + expected
    # Only the rows above scroll, until all of them do again.
    assert "\x1b[1;20r" in ours[0]
    assert "\x1b[r" in ours[-1]
    assert all(len(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", row)) <= 80 for block in ours for row in block.split("\x1b[2K"))


def test_a_small_terminal_gets_lines() -> None:
    sent = _in_terminal("-f", "text=/dev/null", "--", PYTHON, "-c", COUNT, rows=10)
    assert "\x1b7" not in sent


def test_a_terminal_that_changes_its_height_is_fenced_anew() -> None:
    own, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as file:
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
        rows = BottomRows(file, 4)
        assert rows.open()
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        rows.draw([])
        rows.close()
        sent = ""
        while "\x1b[r" not in sent or not sent.endswith("\x1b8"):
            sent += os.read(own, 4096).decode()
    os.close(own)
    assert re.findall(r"\[1;(\d+)r", sent) == ["26", "36"]
    assert "\x1b[37;1H" in sent
