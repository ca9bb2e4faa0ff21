"""Real commands, watched: what is seen of them, how they end, and that they run as if nobody watched."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memplan.errors import UsageError
from memplan.runtime.meters import cpu
from memplan.runtime.monitor import run as run_module
from memplan.runtime.monitor import wire
from memplan.runtime.monitor.child import Wanted
from memplan.runtime.monitor.inside import __file__ as inside
from memplan.runtime.monitor.outcome import RunOutcome
from memplan.runtime.monitor.run import Watch
from memplan.units import GIB

TRAIN = """
import sys, time, torch
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(8, 256)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
time.sleep(0.3)
"""


def watched(code: str, told: Callable[..., None] | None = None, **how: Any) -> RunOutcome:
    return Watch(Wanted(command=(sys.executable, "-c", code), interval=0.1, **how), told).run()


def test_a_training_is_seen_from_within(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    found = watched(TRAIN, log=log, count_cpu=cpu.can_count())
    assert (found.ending.exit_code, found.ending.why, found.post_mortem) == (0, "", None)
    assert found.steps == 6
    [peak] = found.peaks
    if cpu.can_count():
        # Weights, gradients, and at least one batch.
        assert peak.allocated >= 2 * 4 * (256 * 256 + 256)
        assert found.notes == ()
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("start", "end", {"check"})
    assert len(kinds) == found.checks + 2


@pytest.mark.slow
def test_nothing_is_missed_between_the_import_and_the_end(tmp_path: Path) -> None:
    """Five steps, 256 MiB and a refused allocation, all of them between two readings, the last ones just at the end."""
    log = tmp_path / "log.jsonl"
    code = """
import resource, torch
optimizer = torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1)
for _ in range(5):
    optimizer.step()
kept = torch.ones(256 << 18)
resource.setrlimit(resource.RLIMIT_AS, (40 << 30, 40 << 30))
torch.empty(60 << 30, dtype=torch.uint8)
"""
    found = Watch(Wanted(command=(sys.executable, "-c", code), interval=60.0, log=log)).run()
    assert found.steps == 5
    assert found.post_mortem is not None
    assert found.post_mortem.code == "MM104"
    # The host runs other things, and what they hold is none of the command's.
    [peak] = found.peaks
    assert peak.used == found.resident
    assert 256 << 20 <= peak.used < 2 * GIB
    assert [json.loads(line)["kind"] for line in log.read_text().splitlines()][-2:] == ["check", "end"]


@pytest.mark.skipif(not cpu.can_count(), reason="no C++ compiler")
def test_the_first_tensor_after_the_import_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    code = """
import torch
kept = torch.empty(1 << 20)
import sys
from memplan.runtime.meters import cpu
print(cpu.counters().allocated)
"""
    watched(code, count_cpu=True)
    assert int(capfd.readouterr().out) == 4 << 20


def test_from_outside_nothing_is_put_into_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    found = watched("import os, sys; print(sorted(k for k in os.environ if 'MEMPLAN_MONITOR' in k))", inside=False)
    assert capfd.readouterr().out == "[]\n"
    assert found.ending.code == 0


def test_a_command_without_torch_gets_no_thread_and_no_torch(capfd: pytest.CaptureFixture[str]) -> None:
    watched("import threading, sys; print(threading.active_count(), 'torch' in sys.modules, 'memplan' in sys.modules)")
    assert capfd.readouterr().out == "1 False False\n"


def test_the_commands_own_sitecustomize_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = str(Path(inside).parent)
    watched(f"import sys, sitecustomize; print(mine, sitecustomize.__file__); print({folder!r} in sys.path)")
    assert capfd.readouterr().out == f"42 {tmp_path / 'sitecustomize.py'}\nFalse\n"


def test_a_broken_torch_breaks_as_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch today')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = watched("import torch")
    assert found.ending.code == 1
    assert found.ending.why == ""  # Nobody was there to hear it, and it is none of memory.


def test_a_python_without_memplan_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "memplan.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = watched("import torch, time; time.sleep(1)")
    assert found.ending.code == 0
    assert any("not read from within" in note for note in found.notes)


def test_the_refusal_of_host_memory() -> None:
    code = "import resource, torch, time; resource.setrlimit(resource.RLIMIT_AS, (40 << 30, 40 << 30))\n"
    found = watched(code + "time.sleep(0.5); torch.empty(60 << 30, dtype=torch.uint8)")
    assert found.ending.code == 1
    assert found.post_mortem is not None
    assert found.post_mortem.code == "MM104"
    assert "you tried to allocate" in found.post_mortem.sentence


def test_an_exception_of_its_own_is_no_post_mortem() -> None:
    found = watched("import torch, time; time.sleep(0.5); raise ValueError('mine')")
    assert (found.ending.code, found.ending.why, found.post_mortem) == (1, "ValueError: mine", None)


def test_a_kill_that_the_kernel_did_not_count() -> None:
    found = watched("import os, time; time.sleep(0.4); os.kill(os.getpid(), 9)")
    assert found.ending.exit_code == 137
    assert found.post_mortem is not None
    assert found.post_mortem.code == "MM106"
    assert found.post_mortem.last


def test_a_kill_that_the_kernel_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((4, 5))
    monkeypatch.setattr(run_module, "oom_kills", lambda: next(counts))
    found = watched("import os; os.kill(os.getpid(), 9)")
    assert found.post_mortem is not None
    assert found.post_mortem.code == "MM105"


CUDA_STUB = """
import torch, torch.cuda.memory, time, os
stats = {"allocated_bytes.all.current": 70 << 30, "reserved_bytes.all.current": 75 << 30,
         "inactive_split_bytes.all.current": 5 << 30, "allocated_bytes.all.peak": 72 << 30,
         "reserved_bytes.all.peak": 75 << 30, "num_ooms": 1}
class Properties: name, uuid = "Card", "GPU-0"
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch._C._cuda_hasPrimaryContext = lambda index: True
torch.cuda.memory_stats = lambda index: stats
torch.cuda.mem_get_info = lambda index: (3 << 30, 80 << 30)
torch.cuda.get_device_properties = lambda index: Properties
torch.cuda.memory._dump_snapshot = lambda path: open(path, "w").write("snapshot")
observers = []
torch._C._cuda_attach_out_of_memory_observer = observers.append
for call, _ in torch.cuda._queued_calls:  # As ``torch.cuda._lazy_init`` does, at the first use of a device.
    if call.__module__.startswith("memplan"):
        call()
assert observers, "an allocation that fails at once is not seen"
time.sleep(0.3)
observers[0](0, 10 << 30, 80 << 30, 3 << 30)
raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 10.00 GiB.")
"""
"""What PyTorch answers and calls where a CUDA allocation fails; the card itself is made up."""


def test_a_cuda_allocation_that_fails(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    found = watched(CUDA_STUB, snapshots=tmp_path, log=log)
    assert (found.ending.code, found.ending.ooms) == (1, 1)
    assert found.post_mortem is not None
    assert found.post_mortem.code == "MM101"
    assert "10.00 GiB refused on cuda:0: 70.00 GiB allocated, 75.00 GiB reserved" in found.post_mortem.sentence
    assert Path(found.post_mortem.snapshot).read_text() == "snapshot"
    [peak] = found.peaks
    assert (peak.device, peak.allocated, peak.reserved) == ("cuda:0", 72 * GIB, 75 * GIB)
    [line] = [line for line in map(json.loads, log.read_text().splitlines()) if line["kind"] == "oom"]
    assert (line["asked_bytes"], line["device"]) == (10 * GIB, 0)


RANKS = """
import os, sys, subprocess, time
code = "import torch, time; time.sleep(1.5)"
children = [subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ, RANK=str(rank))) for rank in range(2)]
sys.exit(max(child.wait() for child in children))
"""


@pytest.mark.slow
def test_ranks_under_a_launcher() -> None:
    found = watched(RANKS)
    assert found.ending.code == 0
    assert [peak.rank for peak in found.peaks] == [0, 1]


GLOO = """
import os, subprocess, sys, tempfile
code = '''
import sys, time, torch
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
held = torch.ones(100 * 2**20) if rank else None
dist.barrier()
time.sleep(1.0)
dist.destroy_process_group()
'''
meeting = os.path.join(tempfile.mkdtemp(), "meeting")
children = [subprocess.Popen([sys.executable, "-c", code, str(rank), meeting]) for rank in range(2)]
sys.exit(max(child.wait() for child in children))
"""


@pytest.mark.slow
def test_gloo_ranks_of_which_one_holds_more() -> None:
    found = watched(GLOO)
    assert found.ending.code == 0
    [uneven] = [each for each in found.recommendations if each.code == "MM007"]
    assert uneven.message.startswith("rank 1 holds ")
    assert "spread evenly, each would hold" in uneven.message


def test_forks_go_on_without_a_word() -> None:
    code = "import torch, os, time\ntime.sleep(.4)\npid = os.fork()\ntime.sleep(.3)\nif pid: os.waitpid(pid, 0)"
    assert watched(code).ending.code == 0


def test_a_monitor_that_fails_is_not_the_commands_business(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("view broke")

    found = watched("import time; time.sleep(.5); print('done')", fail)
    assert capfd.readouterr().out == "done\n"
    assert found.ending.code == 0
    assert any("view broke" in note for note in found.notes)


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run 'no-such-program'"):
        Watch(Wanted(command=("no-such-program",))).run()


def test_the_variable_is_the_same_on_both_sides() -> None:
    text = Path(inside).with_name("sitecustomize.py").read_text()
    assert f'ADDRESS = "{wire.ADDRESS}"' in text
    assert f"{wire.ADDRESS}_COUNT_CPU" == wire.COUNT_CPU


def _memplan(*arguments: str, code: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "memplan", "monitor", "-q", *arguments, "--", sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)"
    )
    process = _memplan(code=code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(timeout=20) == 7
    process.communicate()


@pytest.mark.slow
def test_the_command_outlives_a_monitor_that_is_killed(tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = (
        f"import torch, time, pathlib\nprint('ready', flush=True)\ntime.sleep(2.5)\npathlib.Path({str(done)!r}).touch()"
    )
    process = _memplan("--interval", "0.05s", code=code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    deadline = time.monotonic() + 20
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert done.exists()
    process.communicate()
