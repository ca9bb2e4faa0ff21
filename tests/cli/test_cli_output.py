"""Where reports go and what the exit code says."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import memplan
from memplan.cli import console
from memplan.cli.app import main
from memplan.errors import EstimateError, UsageError
from memplan.findings.rules import RULES
from memplan.measure import compose
from memplan.measure.records import Estimate
from memplan.report.estimate.text import render
from tests.report.example_estimates import FITS, LONG, OOM, TIGHT, UNKNOWN

Run = Callable[..., int]


@pytest.mark.parametrize(
    ("answers", "threshold", "code"),
    [
        ([OOM], None, 0),
        ([UNKNOWN], None, 3),
        ([FITS], "oom", 0),
        ([FITS], "unknown", 0),
        ([TIGHT], "oom", 0),
        ([TIGHT], "tight", 1),
        ([TIGHT], "unknown", 1),
        ([OOM], "oom", 1),
        ([OOM], "tight", 1),
        ([OOM], "unknown", 1),
        ([UNKNOWN], "oom", 3),
        ([UNKNOWN], "tight", 3),
        ([UNKNOWN], "unknown", 1),
        ([FITS, OOM], "oom", 1),
        ([UNKNOWN, OOM], "oom", 1),
        ([FITS, UNKNOWN], None, 3),
    ],
)
def test_the_exit_code_follows_the_verdicts(
    run: Run, library, answers: list[Estimate], threshold: str | None, code: int
) -> None:
    library.answers = tuple(answers)
    words = ["--fail-on", threshold] if threshold else []
    assert run(*words) == code
    assert run(*words, "--exit-zero") == 0


def test_text_goes_to_standard_output_plain_and_at_80_columns(run: Run, library, capsys) -> None:
    library.answers = (LONG, OOM)
    assert run("--explain") == 0
    assert any(switch.text == "--checkpoint full" for switch in library.switches[-1])
    assert library.envelopes == [True]
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\x1b" not in captured.out
    assert max(len(line) for line in captured.out.splitlines()) <= 80
    assert "✗ OOM" in captured.out


def test_quiet_is_the_verdict_alone(run: Run, library, capsys) -> None:
    library.answers = (FITS, TIGHT)
    assert run("-q") == 0
    assert [line[:6].split()[0] for line in capsys.readouterr().out.splitlines()] == ["✓", "!"]


@pytest.mark.parametrize("words", [("--json",), ("-f", "json"), ("--format", "json")])
def test_json_is_all_that_is_printed(run: Run, capsys, words: tuple[str, ...]) -> None:
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "fits"


def test_json_keeps_long_names_on_one_line_and_whole(run: Run, library, capsys) -> None:
    library.answers = (LONG,)
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["peak"]["module"] == LONG.peak.module


def test_several_reports_at_once(run: Run, capsys) -> None:
    assert run("-f", "text", "-f", "json=report.json", "-f", "text=report.txt") == 0
    assert json.loads(Path("report.json").read_text())["verdict"] == "fits"
    assert Path("report.txt").read_text() == capsys.readouterr().out


def test_a_report_to_a_file_leaves_standard_output_empty(run: Run, capsys) -> None:
    assert run("-f", "json=report.json") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (EstimateError("no meta kernel for flash::fwd", where="model.py:7", hint="register one"), 3,
         ["error: no meta kernel for flash::fwd", "at model.py:7", "hint: register one"]),
        (UsageError("no such preset"), 2, ["error: no such preset"]),
        (ZeroDivisionError("division by zero"), 2, ["internal error, please report", "MEMPLAN_DEBUG=1"]),
        (SystemError("odd"), 2, ["internal error, please report"]),
        (RecursionError("deep"), 2, ["internal error, please report"]),
        (MemoryError(), 2, ["internal error, please report"]),
        (KeyboardInterrupt(), 130, []),
        (SystemExit(1), 2, ["internal error"]),
    ],
)  # fmt: skip
def test_every_failure_has_its_code_and_no_traceback(
    run: Run, library, capsys, monkeypatch, failure: BaseException, code: int, words: list[str]
) -> None:
    monkeypatch.delenv("MEMPLAN_DEBUG", raising=False)
    library.failure = failure
    assert run("--json") == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    for word in words:
        assert word in captured.err


def test_debug_shows_where_it_happened(run: Run, library, capsys, monkeypatch) -> None:
    monkeypatch.setenv("MEMPLAN_DEBUG", "1")
    library.failure = ZeroDivisionError("division by zero")
    assert run() == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_output_without_unicode_gets_plain_letters(monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    console.write_lines(render([OOM]))
    stream.seek(0)
    text = stream.read()
    assert "x OOM" in text
    assert "####" in text


def test_a_document_goes_as_far_as_the_encoding_does() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console.write_plain("**gate** \u274c → 3 GiB\n", stream)
    stream.seek(0)
    assert stream.read() == "**gate** ? > 3 GiB\n"


def test_progress_is_shown_to_nobody_but_a_terminal(capsys) -> None:
    with console.progress() as tell:
        assert tell is None
    assert capsys.readouterr().err == ""


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make standard error a terminal; return what it shows."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_progress_shows_the_phase_as_it_is_on_a_terminal(monkeypatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress() as tell:
        assert tell is not None
        tell("tracing [bold]model[/bold]")
    assert "tracing [bold]model[/bold]" in terminal.getvalue()


def test_what_a_program_prints_stands_above_what_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(console, "_LAST_WORDS", 60.0)  # On a busy machine the thread may come late.
    shown, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with console.progress() as tell:
            assert tell is not None
            tell("tracing step 1")
            time.sleep(0.3)
            subprocess.run(["sh", "-c", "echo loss 11.0 >&2"], stderr=terminal.fileno(), check=True)
        terminal.write("done\n")
    lines = b""
    with suppress(OSError):  # Linux's word for the end of a terminal.
        while part := os.read(shown, 4096):
            lines += part
    seen = [line.split(b"\x1b[2K")[-1] for line in lines.split(b"\n")]
    assert [line.strip() for line in seen if b"loss" in line] == [b"loss 11.0"]
    assert b"done" in lines.splitlines()[-1]


def test_a_quiet_command_says_on_a_terminal_what_takes_so_long(monkeypatch) -> None:
    terminal = on_terminal(monkeypatch)

    def measured(*_: object, progress, **__: object) -> None:
        progress("tracing the third change")
        raise UsageError("enough")

    monkeypatch.setattr(compose, "estimate", measured)
    main(["estimate", "preset:gpt2", "--gpu", "t4", "--quiet"])
    assert "tracing the third change" in terminal.getvalue()


@pytest.mark.parametrize("code", ["MP001", "mp002", "MA001", "MM004", "ml003"])
def test_explain_says_what_a_finding_means(capsys, code: str) -> None:
    assert main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith(f"{code.upper()}  ")


def test_explain_lists_all_findings(capsys) -> None:
    assert main(["explain"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(RULES)
    assert len(listed) == len(set(listed))


def test_every_code_in_the_package_has_an_explanation() -> None:
    package = Path(memplan.__file__).parent
    sources = [path.read_text(encoding="utf-8") for pattern in ("*.py", "*.json") for path in package.rglob(pattern)]
    known = set(RULES)
    assert {code for text in sources for code in re.findall(r"\bM[PAML]\d{3}\b", text)} == known


def test_explain_of_an_unknown_code_is_a_usage_error(capsys) -> None:
    assert main(["explain", "MP999"]) == 2
    assert "memplan explain lists them" in capsys.readouterr().err


def test_every_choice_of_the_help_is_one_that_is_accepted(capsys) -> None:
    assert main(["estimate", "--help-all"]) == 0
    assert "DTYPE[DIMS]" in capsys.readouterr().out


def test_a_usage_error_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What Typer complains about, too: it repeats what was typed."""
    assert main(["batch", "model.py", "--timeout", "\x1b[31m\x9b5m\r\x07"]) == 2
    said = capsys.readouterr().err
    assert "invalid value for '--timeout'" in said
    assert not {"\x1b", "\x9b", "\r", "\x07"} & set(said)


# Messages on a terminal.


def test_a_message_is_broken_between_words_where_a_terminal_reads_it(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/path/that/is/longer/than/a/line/of/this/terminal"
    console.tell(f"error: there is none of the twenty things that were asked for here\n  hint: try {path}\n")
    assert capsys.readouterr().err == (
        f"error: there is none of the twenty\n       things that were asked for here\n  hint: try\n        {path}\n"
    )


def test_a_word_longer_than_a_line_stands_behind_its_label(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    console.tell(f"error: '{'x' * 50}' is not a target\n")
    assert capsys.readouterr().err == f"error: '{'x' * 50}'\n       is not a target\n"


def test_a_command_to_copy_is_not_broken(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    console.tell("  hint: memplan estimate model.py --gpu t4\n")
    assert capsys.readouterr().err == "  hint: memplan estimate model.py --gpu t4\n"


def test_a_message_that_no_terminal_reads_stays_in_one_line(capsys, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console.tell("word " * 60)
    assert capsys.readouterr().err == "word " * 60


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["estimate", "gpt2", "--batch-size", "x"], "error: invalid value for '--batch-size': "),
        (["estimat"], "error: no such command 'estimat'. Did you mean 'estimate'"),
    ],
)
def test_what_typer_refuses_is_told_like_any_error(capsys, words: list[str], error: str) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(error)
    assert said.endswith(f"  hint: memplan {words[0]} -h\n" if len(words) > 1 else "  hint: memplan -h\n")
