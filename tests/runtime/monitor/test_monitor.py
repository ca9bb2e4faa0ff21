"""The monitor in a process of its own: checks, the log, the thread, callbacks of real trainers."""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import memplan
from memplan.errors import UsageError
from memplan.runtime.meters import cpu
from memplan.runtime.meters.records import Reading
from memplan.runtime.monitor.callbacks import lightning_callback, transformers_callback
from memplan.runtime.monitor.monitor import MemoryMonitor
from memplan.runtime.monitor.records import Check, Level, RegionUse
from memplan.units import GIB
from tests.runtime.monitor.readings import filled, plan, reading


def _shares(*shares: float) -> Iterator[Reading]:
    yield from (reading(filled(share)) for share in shares)


def test_a_check_of_this_process() -> None:
    with MemoryMonitor(regions=lambda: [RegionUse(name="forward", bytes=5)]) as monitor:
        assert monitor.latest() is None
        check = monitor.check(step=3)
    assert monitor.latest() is check
    assert (check.number, check.step, check.regions[0].bytes) == (0, 3, 5)
    assert check.host.limit == check.reading.host.total
    assert [health.rank for health in check.devices] == [None]


def test_rises_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    shares = _shares(0.5, 0.93, 0.93, 0.96, 0.5)
    monitor = MemoryMonitor(reader=lambda: next(shares))
    with caplog.at_level(logging.WARNING, logger="memplan"):
        levels = [monitor.check().level for _ in range(5)]
    assert levels == [Level.NORMAL, Level.WARNING, Level.WARNING, Level.CRITICAL, Level.NORMAL]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["memory warning", "memory critical"]


def test_every_check_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"from": "an earlier run"}\n')
    shares = _shares(0.5, 0.93)
    with MemoryMonitor(reader=lambda: next(shares), log=file, plan=plan(high=200 * GIB)) as monitor:
        monitor.check(step=1)
        monitor.check(step=2)
    first, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert first == {"from": "an earlier run"}
    assert [(line["kind"], line["step"], line["level"]) for line in lines] == [
        ("check", 1, "normal"),
        ("check", 2, "warning"),
    ]
    assert lines[1]["devices"][0]["reasons"][0]["code"] == "MM001"
    assert lines[1]["devices"][0]["predicted_high_bytes"] == 199 * GIB


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        MemoryMonitor(log=tmp_path / "no" / "log.jsonl")


def test_ranks_come_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert MemoryMonitor(reader=reading).check().devices[0].rank == 3
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert MemoryMonitor(reader=reading).check().devices[0].rank is None


def test_counted_cpu_tensors() -> None:
    if not cpu.can_count():
        pytest.skip("no C++ compiler")
    with MemoryMonitor(count_cpu=True) as monitor:
        before = monitor.check().reading.devices[0].allocated
        kept = torch.ones(1 << 18)
        after = monitor.check().reading.devices[0].allocated
    assert before is not None
    assert after is not None
    assert after - before == kept.nbytes
    assert not cpu.is_counting()
    monitor.close()  # Once more does no harm.


def test_a_thread_checks_and_its_end_is_not_the_trainings(caplog: pytest.LogCaptureFixture) -> None:
    shares = _shares(0.5, 0.5)
    monitor = MemoryMonitor(reader=lambda: next(shares))
    with monitor.every(0.01):
        deadline = time.monotonic() + 10
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
    assert monitor.latest() is not None
    assert "stopped" in caplog.text


def test_threads_may_check_at_once() -> None:
    monitor = MemoryMonitor(reader=reading)
    threads = [Thread(target=lambda: [monitor.check() for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latest = monitor.latest()
    assert latest is not None
    assert latest.number == 79


class Noise(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((4,), float(index)), "labels": torch.zeros(1)}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).square().mean()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stop_at", [None, Level.CRITICAL])
def test_a_trainer_of_transformers(tmp_path: Path, stop_at: Level | None) -> None:
    transformers = pytest.importorskip("transformers")
    shares = _shares(*[0.5] * 2, *[0.95] * 20)
    monitor = MemoryMonitor(reader=lambda: next(shares))
    told: list[Check] = []
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    callback = transformers_callback(monitor, stop_at=stop_at, told=told.append)
    trainer = transformers.Trainer(model=Net(), args=arguments, train_dataset=Noise(), callbacks=[callback])
    trainer.train()
    assert [check.step for check in told] == ([1, 2, 3, 4] if stop_at is None else [1, 2, 3])
    assert bool(list(tmp_path.glob("checkpoint-3"))) == (stop_at is not None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("stop_at", [None, Level.CRITICAL])
def test_a_trainer_of_lightning(
    tmp_path: Path, library: str, stop_at: Level | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl: Any = pytest.importorskip(library)
    monkeypatch.setattr("memplan.runtime.monitor.callbacks.lightning_library", lambda: pl)

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    shares = _shares(*[0.5] * 2, *[0.95] * 20)
    told: list[Check] = []
    callback = lightning_callback(MemoryMonitor(reader=lambda: next(shares)), stop_at=stop_at, told=told.append)
    trainer = pl.Trainer(
        max_steps=4, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Noise(), batch_size=4))
    assert [check.step for check in told] == ([1, 2, 3, 4] if stop_at is None else [1, 2, 3])


@pytest.mark.parametrize("make", [transformers_callback, lightning_callback])
def test_a_missing_library_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("memplan.runtime.monitor.callbacks.import_module", missing)
    with pytest.raises(UsageError, match="is not installed"):
        make(MemoryMonitor(reader=reading))


def test_regions_are_those_of_the_recording_in_progress() -> None:
    with MemoryMonitor() as monitor:
        assert monitor.check().regions == ()
        with memplan.profile("run", depth="counters") as run:
            for _ in range(2):
                with memplan.profile("step"), memplan.profile("forward"):
                    torch.empty(1000)
            with memplan.profile("open"):
                found = {region.name: region.bytes for region in monitor.check().regions}
        assert monitor.check().regions == ()
    # What is still open has no figures yet.
    assert set(found) == {"step", "step/forward"}
    told = {"/".join(each.path[1:]): each.growth_bytes for each in run.recording.regions}
    assert {name: told[name] for name in found} == found


@pytest.mark.skipif(not cpu.can_count(), reason="nothing here compiles the counters")
def test_a_recording_beside_it_takes_no_peak_away() -> None:
    with MemoryMonitor(count_cpu=True) as monitor:
        cpu.reset_peak()
        before = monitor.check().reading.devices[0]
        with memplan.profile("run", depth="counters"):
            with memplan.profile("large"):
                torch.empty(1 << 20)
            with memplan.profile("small"):
                torch.empty(1)
            after = monitor.check().reading.devices[0]
    assert after.peak_allocated - before.allocated >= 4 << 20
