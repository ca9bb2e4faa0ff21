"""The child process: results, progress, timeouts and every way in which user code can end it."""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from memplan.errors import EstimateError, ExitCode, MemplanError, UsageError
from memplan.files.scratch import scratch_folder
from memplan.job.child import progress
from memplan.job.isolate import ChildTraceback, run_isolated

SECONDS = 20.0

pytestmark = pytest.mark.usefixtures("fresh_children")


def add(left, right):
    return left + right


def report(texts):
    for text in texts:
        progress(text)
    return len(texts)


def shout(text):
    print(text)  # noqa: T201
    os.system(f"echo {text}")
    os.write(1, text.encode())
    print(text, file=sys.stderr)  # noqa: T201
    return "quiet"


def hang():
    progress("tracing step 1")
    while True:
        time.sleep(0.01)


def write_scratch_and_hang():
    with scratch_folder() as folder:
        Path(folder, "kept").write_text("x")
        progress(str(folder))
        time.sleep(60)


def hang_at_exit():
    atexit.register(time.sleep, 60)
    threading.Thread(target=time.sleep, args=(60,)).start()
    return os.getpid()


def leave_a_grandchild_and_hang(pid_file):
    Path(pid_file).write_text(f"{os.getpid()} {subprocess.Popen(['sleep', '60']).pid}\n")
    hang()


def leave_a_grandchild_and_hang_where_signals_are_refused(pid_file):
    from memplan.tracing.script.effects import no_side_effects  # noqa: PLC0415 - other children shall not import torch.

    pids = f"{os.getpid()} {subprocess.Popen(['sleep', '60'], start_new_session=True).pid}\n"
    with Path(pid_file).open("w") as file, no_side_effects(print):
        file.write(pids)
        file.flush()
        hang()


def raise_usage_error():
    raise UsageError("no such preset", where="--preset", hint="did you mean gpt2?")


def raise_value_error():
    raise ValueError("boom")


def end_with(code):
    os._exit(code)


def exit_with(code):
    sys.exit(code)


def kill_self(number):
    os.kill(os.getpid(), number)
    time.sleep(SECONDS)


def ask():
    return input()


def unpicklable():
    return lambda: 0


def environment():
    heavy = {"torch", "numpy", "asyncio", "typer", "rich"} & set(sys.modules)
    return os.getpid(), sys.path, heavy


def big(size):
    return b"x" * size


def test_results_come_back_from_another_process():
    assert run_isolated(add, 2, 3, timeout=SECONDS) == 5
    pid, path, heavy = run_isolated(environment, timeout=SECONDS)
    assert pid != os.getpid()
    assert path == sys.path
    assert heavy == set()


def test_big_arguments_and_results_pass():
    assert run_isolated(big, 10**7, timeout=SECONDS) == b"x" * 10**7
    assert run_isolated(add, b"x" * 10**7, b"y", timeout=SECONDS)[-2:] == b"xy"


def test_progress_is_relayed_in_order():
    seen = []
    texts = ["tracing step 1", "two\nlines", "Ψ" * 10_000, ""]
    assert run_isolated(report, texts, timeout=SECONDS, progress=seen.append) == 4
    assert seen == texts
    assert run_isolated(report, texts, timeout=SECONDS) == 4


def test_progress_outside_of_a_child_is_silent(capfd):
    progress("nothing")
    assert capfd.readouterr() == ("", "")


def test_user_prints_never_reach_our_output(capfd):
    assert run_isolated(shout, "HERE", timeout=SECONDS) == "quiet"
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("HERE") == 4


def test_timeout_says_where_the_code_was():
    start = time.monotonic()
    with pytest.raises(EstimateError, match="within 2 seconds") as caught:
        run_isolated(hang, timeout=2.0)
    assert 2 <= time.monotonic() - start < 10
    assert caught.value.exit_code == ExitCode.UNKNOWN == 3
    assert "tracing step 1" in caught.value.what
    first = hang.__code__.co_firstlineno
    assert any((caught.value.where or "").endswith(f"test_isolate.py:{first + line}") for line in range(1, 4))


def test_a_timeout_leaves_no_scratch_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = []
    with pytest.raises(EstimateError):
        run_isolated(write_scratch_and_hang, timeout=2.0, progress=told.append)
    assert Path(told[0]).is_relative_to(tmp_path)
    assert not list(tmp_path.iterdir())


def test_timeout_kills_the_whole_group(tmp_path):
    pid_file = tmp_path / "pids"
    with pytest.raises(EstimateError):
        run_isolated(leave_a_grandchild_and_hang, str(pid_file), timeout=4.0)
    assert_gone(pid_file.read_text().split())


def test_exit_hooks_and_threads_cannot_hang():
    start = time.monotonic()
    pid = run_isolated(hang_at_exit, timeout=SECONDS)
    assert time.monotonic() - start < 10
    assert_gone([pid])


def test_errors_of_memplan_arrive_as_they_are():
    with pytest.raises(UsageError) as caught:
        run_isolated(raise_usage_error, timeout=SECONDS)
    error = caught.value
    assert (error.what, error.where, error.hint) == ("no such preset", "--preset", "did you mean gpt2?")
    assert isinstance(error.__cause__, ChildTraceback)
    assert "in raise_usage_error" in str(error.__cause__)


def test_other_errors_of_user_code_are_explained():
    with pytest.raises(EstimateError, match="ValueError: boom") as caught:
        run_isolated(raise_value_error, timeout=SECONDS)
    line = raise_value_error.__code__.co_firstlineno + 1
    assert (caught.value.where or "").endswith(f"test_isolate.py:{line}")


def test_an_error_without_user_code_is_internal():
    with pytest.raises(MemplanError, match="internal error") as caught:
        run_isolated(unpicklable, timeout=SECONDS)
    assert caught.value.exit_code == ExitCode.USAGE == 2
    assert "child.py" in (caught.value.where or "")


@pytest.mark.parametrize("code", [0, 1, 77])
def test_os_exit_is_told(code):
    with pytest.raises(EstimateError, match=f"exit code {code}") as caught:
        run_isolated(end_with, code, timeout=SECONDS)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("code", [0, None, "stop"])
def test_sys_exit_is_told(code):
    with pytest.raises(EstimateError) as caught:
        run_isolated(exit_with, code, timeout=SECONDS)
    assert f"sys.exit({code!r})" in caught.value.what


@pytest.mark.parametrize(("number", "hint"), [(signal.SIGKILL, "out of memory"), (signal.SIGSEGV, "extension")])
def test_signals_are_told(number, hint):
    with pytest.raises(EstimateError, match=number.name) as caught:
        run_isolated(kill_self, int(number), timeout=SECONDS)
    assert hint in (caught.value.hint or "")


def test_user_code_reads_no_input():
    with pytest.raises(EstimateError, match="EOFError") as caught:
        run_isolated(ask, timeout=SECONDS)
    assert "terminal" in (caught.value.hint or "")


def test_an_error_in_the_progress_callback_ends_the_child():
    def fail(text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(hang, timeout=SECONDS, progress=fail)


@pytest.mark.parametrize(
    ("number", "hanging"),
    [
        *((number, leave_a_grandchild_and_hang) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
        (signal.SIGKILL, leave_a_grandchild_and_hang_where_signals_are_refused),
    ],
)
def test_the_child_dies_with_its_parent(tmp_path, number, hanging):
    pid_file = tmp_path / "pids"
    code = f"""
        import signal, sys
        sys.path[:] = {sys.path!r}
        # What a shell starts in the background ignores SIGINT, and so would this process, as their descendant.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from memplan.job.isolate import run_isolated
        from {__name__} import {hanging.__name__}
        run_isolated({hanging.__name__}, {str(pid_file)!r}, timeout=60.0)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL)
    wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    parent.send_signal(number)
    parent.wait(10)
    assert_gone(pid_file.read_text().split())


def wait_until(is_done):
    deadline = time.monotonic() + 60  # A busy machine takes long to start a process.
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        # A killed orphan may stay a zombie where nobody reaps it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(pids):
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids))


def write_to_all_descriptors():
    for descriptor in range(3, 1024):
        try:
            os.write(descriptor, b"x" * 100)
        except OSError:
            continue
    return "done"


def close_all_descriptors():
    os.closerange(3, 4096)
    return "done"


def guess_small_descriptors():
    for descriptor in range(3, 100):
        try:
            os.write(descriptor, b"x" * 100)
        except OSError:
            continue
    os.closerange(3, 100)
    return "done"


def open_all_descriptors():
    kept = []
    while True:
        try:
            kept.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            break
    raise OSError(24, "Too many open files")


def remove_the_folder(folder):
    os.chdir(folder)
    Path(folder).rmdir()
    return Path.cwd()


def leave_a_session_of_its_own(pid_file):
    # Its parent ends at once, as daemons do.
    quiet = "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    program = f"import subprocess; print(subprocess.Popen(['sleep', '300'], {quiet}).pid)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    Path(pid_file).write_text(found.stdout)
    return "done"


def leave_a_session_and_hang(pid_file):
    leave_a_session_of_its_own(pid_file)
    hang()


@pytest.mark.parametrize(
    ("function", "says"),
    [(write_to_all_descriptors, "wrote to a file descriptor"), (close_all_descriptors, "closed a file descriptor")],
)
def test_what_is_done_to_our_descriptors_is_told(function, says):
    began = time.monotonic()
    with pytest.raises(EstimateError, match=f"the user's code {says} that is memplan's"):
        run_isolated(function, timeout=SECONDS)
    assert time.monotonic() - began < SECONDS


def test_who_guesses_small_descriptors_finds_none_of_ours():
    assert run_isolated(guess_small_descriptors, timeout=SECONDS) == "done"


def test_used_up_descriptors_and_removed_folders_are_no_defects_of_memplan(tmp_path):
    with pytest.raises(EstimateError) as caught:
        run_isolated(open_all_descriptors, timeout=SECONDS)
    assert "Too many open files" in caught.value.what
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(EstimateError) as caught:
        run_isolated(remove_the_folder, str(folder), timeout=SECONDS)
    assert "defect of memplan" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
@pytest.mark.parametrize("function", [leave_a_session_of_its_own, leave_a_session_and_hang])
def test_a_grandchild_in_a_session_of_its_own_ends_too(function, tmp_path):
    pid_file = tmp_path / "pid"
    if function is leave_a_session_and_hang:
        with pytest.raises(EstimateError, match="within 4 seconds"):
            run_isolated(function, str(pid_file), timeout=4.0)
    else:
        assert run_isolated(function, str(pid_file), timeout=SECONDS) == "done"
    status = Path("/proc") / pid_file.read_text().strip() / "status"
    deadline = time.monotonic() + SECONDS
    while not (ended := has_ended(status)) and time.monotonic() < deadline:
        time.sleep(0.02)  # Killed, but a busy machine has not let it die yet.
    assert ended


def has_ended(status: Path) -> bool:
    """Has the process ended? Nobody may have fetched its exit code yet."""
    try:
        return "State:\tZ" in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
