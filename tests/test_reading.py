"""Every file that somebody names is read in bounded time and memory, or refused with a sentence that says why."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import memplan
from memplan.audit.source import read_source
from memplan.cli.app import main
from memplan.errors import UsageError
from memplan.files.documents import DEEPEST, parse_json, read_toml
from memplan.files.read import MissingError, TooLargeError, UnreadableError, is_file, read_bytes, read_text
from memplan.gate.saved import load_content
from memplan.hardware.catalog import load_profile
from memplan.job.adapters import parse_lora
from memplan.job.config_files.content import load as load_configuration
from memplan.job.setup_file import load_setup
from memplan.plan.checkpoint.graph_file import read_instance
from memplan.plan.reuse.csv_file import read_problem
from memplan.project.find import read_toml as read_project
from memplan.runtime.adaptive.prediction import predicted_size
from memplan.runtime.checkpoint.plan_file import read_plan
from memplan.runtime.monitor.plan import read_plan as read_prediction
from memplan.runtime.partition.order_file import read_order
from memplan.runtime.pools.planned import planned_sizes
from memplan.simulate.lengths import parse_distribution
from memplan.snapshot.read import load_snapshot

SECONDS = 5.0
"""CPU time that no reader may take for a hostile file; most take milliseconds."""


def lora(path: Path) -> object:
    there = path.with_name(path.name + ".json")
    if os.path.lexists(path):
        there.symlink_to(path)
    return parse_lora(str(there))


READERS: dict[str, Callable[[Path], object]] = {
    "setup": load_setup,
    "result or baseline": load_content,
    "checkpoint plan": read_plan,
    "order": read_order,
    "prediction": read_prediction,
    "batch": predicted_size,
    "buffers at the peak": planned_sizes,
    "graph": read_instance,
    "buffers": read_problem,
    "project": read_project,
    "configuration": load_configuration,
    "adapters": lora,
    "lengths": lambda path: parse_distribution(str(path)),
    "snapshot": load_snapshot,
}


def nothing(path: Path) -> None:
    del path


def named_pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def holding(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # Without a block on the disk.


HOSTILE: dict[str, Callable[[Path], None]] = {
    "nothing": nothing,
    "folder": Path.mkdir,
    "named pipe": named_pipe,
    "device without end": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "loop": loop,
    "file of a TiB": huge,
    "empty": holding(b""),
    "NUL bytes": holding(b"\0" * 1000),
    "no text": holding(b"\xff\xfe\xfa"),
    "deep JSON": holding(b"[" * 500_000),
    "deep objects": holding(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "deep enough for parsers": holding(b'{"a":' * 500 + b"1" + b"}" * 500),
    "long integer": holding(b'{"a": ' + b"9" * 10_000 + b"}"),
    "longer integer": holding(b'{"a": ' + b"9" * 4000 + b"}"),
    "infinite": holding(b'{"a": 1e999}'),
    "half a character": holding(b'{"a": "\\ud800"}'),
    "dotted keys": holding(b"a." * 50_000 + b"a = 1"),
    "dotted keys in quotes": holding(b'"a b" . ' * 50_000 + b'"a" = 1'),
    "dotted table": holding(b"[" + b"a." * 50_000 + b"a]"),
    "long integer in TOML": holding(b"a = " + b"9" * 10_000),
    "deep TOML": holding(b"a = " + b"[" * 100_000),
    "aliases": holding(b"a0: &a0 [1]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 21))),
    "merged aliases": holding(b"a0: &a0 {x: 1}\n" + b"".join(
        b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (i, i, i - 1, i - 1) for i in range(1, 25))),
    "itself in YAML": holding(b"a: &a [*a]"),
    "number of sixties": holding(b"a: 1" + b":1" * 200_000),
    "code in YAML": holding(b"a: !!python/object/apply:os.system [touch pwned]"),
    "many commas": holding(b"," * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_refused_at_once(reader: str, kind: str, tmp_path: Path) -> None:
    if (reader, kind) == ("project", "empty"):
        pytest.skip("to TOML, an empty file is an empty table")
    path = tmp_path / "file"
    HOSTILE[kind](path)
    began = time.process_time()
    with pytest.raises(UsageError):
        READERS[reader](path)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("kind", ["named pipe", "device without end", "loop", "file of a TiB", "no text"])
def test_other_readers_pass_over_what_is_no_file(kind: str, tmp_path: Path) -> None:
    HOSTILE[kind](tmp_path / "file.toml")
    with pytest.raises(UsageError):
        load_profile("file", profile_dirs=(tmp_path,))
    assert read_source(tmp_path / "file.toml", "file").unread


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_no_file_can_have_is_refused(reader: str, name: str) -> None:
    with pytest.raises(UsageError):
        READERS[reader](Path(name))


def test_a_folder_that_may_not_be_looked_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # The superuser may look everywhere, so the system's answer is given by hand.
    def refused(self: Path, **_: object) -> object:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "stat", refused)
    for words in (["snapshot", "a/b.pickle"], ["simulate", "a/b.pickle"], ["reuse-plan", "a/b.csv"],
                  ["emit", "a/b.json", "--to", "hf"], ["report", "a/b.json"], ["diff", "a/b.json", "a/c.json"],
                  ["gate", "--project", "a/memplan.toml"], ["audit", "a/b.py"]):  # fmt: skip
        assert main(words) == 2
        told = capfd.readouterr().err
        assert "internal error" not in told, words


@pytest.mark.parametrize("name", ["x" * 5000 + "{}", "loop/x{}", "loop{}"])
def test_commands_refuse_names_that_lead_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in ("", ".pickle", ".csv", ".json", ".py", ".toml"):
        Path(f"loop{suffix}").symlink_to(f"loop{suffix}")
    for words in (
        ["snapshot", ".pickle"], ["simulate", ".pickle"], ["reuse-plan", ".csv"], ["emit", ".json", "--to", "hf"],
        ["report", ".json"], ["diff", ".json", "nothing"], ["gate", "--project", ".toml"], ["audit", ".py"],
        ["estimate", ".py", "--gpu", "l4"], ["init", ".py"],
        ["estimate", "m.py", "--gpu", "l4", "--checkpoint", ".json"],
    ):  # fmt: skip
        assert main([name.format(word) if word.startswith(".") else word for word in words]) == 2
        assert "internal error" not in capfd.readouterr().err, words


def test_a_pipe_of_the_shell_is_read_up_to_the_limit(tmp_path: Path) -> None:
    for size, refused in ((100, False), (101, True)):
        reading, writing = os.pipe()
        os.write(writing, b"x" * size)
        os.close(writing)
        assert is_file(f"/dev/fd/{reading}")
        if refused:
            with pytest.raises(TooLargeError):
                read_bytes(f"/dev/fd/{reading}", 100)
        else:
            assert read_bytes(f"/dev/fd/{reading}", 100) == b"x" * 100
        os.close(reading)


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_bytes(path, 100) == b"x" * 100
    with pytest.raises(TooLargeError, match="larger than 99 B"):
        read_bytes(path, 99)
    with pytest.raises(MissingError):
        read_bytes(tmp_path / "nothing")
    # The system says of its own files that they are empty.
    assert read_text("/proc/self/stat").startswith(str(os.getpid()))


def test_the_limit_of_snapshots_is_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(b"x" * 2000)
    assert main(["snapshot", str(path), "--max-size", "1KiB"]) == 2
    assert "larger than 1.00 KiB" in (told := capfd.readouterr().err)
    assert "--max-size allows more" in told
    assert main(["snapshot", str(path)]) == 2
    assert "not a CUDA memory snapshot" in capfd.readouterr().err
    assert main(["snapshot", str(path), "--max-size", "much"]) == 2


@pytest.mark.parametrize("text", ["1", '"a"', "null", '{"a": [1, 2.5, "ü", true, null, -9223372036854775808]}',
                                  "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1), '"\\ud83d\\udca5"'])  # fmt: skip
def test_ordinary_json_is_what_it_was(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "18446744073709551616", "NaN", "-Infinity"]
)
def test_what_no_program_of_ours_writes_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_json(text)


def test_ordinary_toml_is_what_it_was(tmp_path: Path) -> None:
    text = '[tool."a.b".c]\r\nd.e = "1.2.3.4"\r\nf = [1.5, {g.h = true}]\r\nwhen = 2026-01-01\r\n'
    (tmp_path / "a.toml").write_bytes(text.encode())
    content, _ = read_toml(tmp_path / "a.toml")
    assert content["tool"]["a.b"]["c"]["d"] == {"e": "1.2.3.4"}


OPENS = re.compile(r"(?<!_)\bopen\(|\.read_text\(|\.read_bytes\(|fdopen\(")
ELSEWHERE = {
    "memplan/files/read.py": "the one place",
    "memplan/files/write.py": "writes",
    "memplan/runtime/monitor/log.py": "writes",
    "memplan/runtime/monitor/child.py": "the terminal",
    "memplan/files/output.py": "turns a stream off",
    "memplan/job/child.py": "pipes between processes",
    "memplan/cli/console.py": "turns a stream off",
    "memplan/job/reads.py": "hashes what the user's code has read itself",
    "memplan/runtime/meters/host.py": "the system's own files",
    "memplan/runtime/monitor/processes.py": "the system's own files",
    "memplan/runtime/numa/system_files.py": "the system's own files",
    "memplan/validate/device.py": "the system's own files",
    "memplan/validate/cuda.py": "copies what it has written itself",
    "memplan/tracing/inductor/wrapper.py": "what Inductor has just written",
    "memplan/measure/cache.py": "hashes memplan's own source; what the system says of its processor",
    "memplan/runtime/native.py": "memplan's own source",
    "memplan/job/places.py": "the source of a module that is imported",
    "memplan/cli/monitor_display.py": "a method of this name",
    "memplan/tracing/script/effects.py": "what programs open",
    "memplan/tracing/script/saved_objects.py": "what programs open",
    "memplan/tracing/script/written_files.py": "what programs open",
    "memplan/cli/open.py": "opens a browser",
    "memplan/plan/reuse/compiled.py": "hashes memplan's own source",
    "memplan/job/presets/catalog.py": "the package's own files",
}


def test_files_are_opened_in_one_place() -> None:
    """Files of the package itself (``importlib.resources``) and those above are the exceptions."""
    root = Path(memplan.__file__).parents[1]
    found = {
        f"{file}:{number}": line.strip()
        for path in sorted((root / "memplan").rglob("*.py"))
        if (file := path.relative_to(root).as_posix()) not in ELSEWHERE
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if OPENS.search(line) and "(files(" not in line and "files(_PACKAGE)" not in line
    }
    assert found == {}


@pytest.mark.slow
def test_memory_is_bounded_too(tmp_path: Path) -> None:
    huge(tmp_path / "file")
    program = f"""
from pathlib import Path
from memplan.files.read import read_bytes
for path in ({str(tmp_path / "file")!r}, "/dev/zero"):
    try:
        read_bytes(path)
    except ValueError as error:
        print(error)
# Of this program alone: the peak that getrusage tells is inherited from the process that forked.
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout.split()[-1]) < 100_000, done.stdout
