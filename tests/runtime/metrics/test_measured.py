"""With a real monitor: what PyTorch allocates is what is exported."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from memplan.runtime.meters import cpu
from memplan.runtime.metrics.exporter import export_metrics
from memplan.runtime.monitor.monitor import MemoryMonitor
from memplan.runtime.web.server import serve_dashboard
from tests.runtime.metrics.scraping import of, samples, scraped
from tests.runtime.web.asking import asked

pytestmark = pytest.mark.skipif(not cpu.can_count(), reason="nothing here compiles the counters")
MIB = 1 << 20


@pytest.fixture
def monitor() -> Iterator[MemoryMonitor]:
    with MemoryMonitor(count_cpu=True) as found:
        yield found


def test_bytes_alive_by_size_are_those_of_the_tensors(monitor: MemoryMonitor) -> None:
    sizes = [1, 2, 3, 64, 1000, MIB, MIB + 1, 5 * MIB]
    before = monitor.check().reading.devices[0]
    held = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    after = monitor.check().reading.devices[0]
    expected = Counter[int]()
    for size in sizes:
        expected[size.bit_length()] += size  # Less than 2**power, and not less than half of that.
    grown = {
        power: new - old for power, (old, new) in enumerate(zip(before.sizes, after.sizes, strict=True)) if new - old
    }
    assert grown == expected
    assert sum(after.sizes) == after.allocated
    held.clear()
    again = monitor.check().reading.devices[0]
    assert again.sizes == before.sizes
    for _ in range(34):
        torch.empty(1)
    timed = monitor.check().reading.devices[0]
    assert sum(timed.times) - sum(again.times) == 2  # One of 17 is timed.
    assert timed.spent > again.spent


def test_what_is_allocated_is_what_is_scraped(monitor: MemoryMonitor) -> None:
    exporter = export_metrics(monitor, port=0, job="run")
    try:
        assert of(samples(scraped(exporter)), "memplan_checks_total") is None
        monitor.check(1)
        before = samples(scraped(exporter))
        held = [torch.empty(3 * MIB, dtype=torch.uint8) for _ in range(17)]
        monitor.check(2)
        after = samples(scraped(exporter))
    finally:
        exporter.close()
    for name, grown in (
        ("memplan_torch_allocated_bytes", 51 * MIB),
        ("memplan_allocation_seconds_count", len(held) / 17),
    ):
        assert of(after, name, gpu="cpu") - of(before, name, gpu="cpu") == grown
    assert of(after, "memplan_step") == 2


def test_the_live_page_follows_the_monitor(monitor: MemoryMonitor) -> None:
    dashboard = serve_dashboard(monitor, port=0)
    try:
        monitor.check(7)
        deadline = time.monotonic() + 10
        while b'"step":[7]' not in asked(dashboard.address, "/data.json")[2]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        dashboard.close()


@pytest.mark.slow
def test_the_command_serves_what_happens_in_the_process_that_it_watches(tmp_path: Path) -> None:
    # Again and again: counting begins some time after the process does.
    steps = "held = None; held = torch.empty(7 << 20, dtype=torch.uint8); time.sleep(0.5)"
    (tmp_path / "train.py").write_text(f"import time, torch\nwhile True: {steps}\n")
    command = ["-m", "memplan", "monitor", "--count-cpu", "--interval", "200ms"]
    command += ["--prometheus", "127.0.0.1:0", "--web", "127.0.0.1:0", "--", sys.executable, "train.py"]
    with subprocess.Popen(
        [sys.executable, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stderr
        addresses = dict(
            re.findall(r"(\w+) at http://([\d.:]+)/", process.stderr.readline() + process.stderr.readline())
        )
        deadline = time.monotonic() + 50

        def counted() -> bool:
            text = asked(addresses["prometheus"], "/metrics")[2].decode()
            return f'memplan_torch_allocated_bytes{{gpu="cpu",gpu_uuid="",job="train",rank=""}} {7 << 20:.6e}' in text

        try:
            # The page takes checks at its own pace: it may show the one before for a moment.
            while not (counted() and b'"allocated_bytes":7340032' in asked(addresses["web"], "/data.json")[2]):
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            process.terminate()
