"""The law of every file that memplan both writes and reads: what is not read back from it was told to be missing."""

import json
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from memplan.cli.app import main
from memplan.emit.formats import FORMATS, emit
from memplan.errors import UsageError
from memplan.job.adapters import parse_lora
from memplan.job.config_files.read import FileSettings, read_config
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Setup, load_setup, setup_hash, write_setup
from memplan.job.spec import JobSpec
from memplan.job.zero import Zero
from memplan.units import format_bytes
from tests.emit.files import written
from tests.emit.setups import CONFIGURATION, setup, setups

READ_BACK = ("deepspeed", "accelerate", "hf", "axolotl")


def plain(job: JobSpec) -> JobSpec:
    """The same job in one of several words for the same thing."""
    job = replace(job, optimizer_impl="auto") if job.optimizer_impl == "foreach" else job
    if not job.parallel.data.startswith("zero"):
        return job
    zero = job.zero or Zero(stage=int(job.parallel.data[-1]))  # type: ignore[arg-type]
    usual = Zero()
    # What is not offloaded has no section to hold its buffers.
    idle = [name for name in ("param", "optimizer") if getattr(zero, f"offload_{name}") == "none"]
    names = [
        field.name for field in fields(Zero) if field.name.partition("_")[0] in idle and "persistence" not in field.name
    ]
    zero = replace(zero, **{name: getattr(usual, name) for name in names})
    if zero.offload_param == zero.offload_optimizer == "none":
        zero = replace(zero, pin_memory=usual.pin_memory)
    half = job.precision.removesuffix("-mixed")
    precision = f"{half}-mixed" if half != "fp32" else "fp32"
    implementation = "auto" if job.optimizer_impl == "fused" else job.optimizer_impl
    return replace(job, zero=zero, precision=precision, optimizer_impl=implementation)  # type: ignore[arg-type]


def forgotten(job: JobSpec, found: FileSettings, notes: tuple[str, ...]) -> list[str]:
    """Fields that the files neither say nor are told to leave out."""
    empty = JobSpec(target=job.target)
    read = plain(replace(empty, **found.values))
    job = plain(job)
    names = (*CONFIGURATION, "zero")
    told = {name for name in names for note in notes if note.startswith((f"{name} ", f"{name}:"))}
    return [name for name in names if name not in told and getattr(job, name) != getattr(read, name)]


def check(made: Setup, to: str) -> None:
    """The law, for one setup that the framework can run."""
    emitted = emit(made, to)
    with TemporaryDirectory() as folder:
        found = read_config(written(emitted, Path(folder)))
    assert forgotten(made.job, found, emitted.notes) == []
    assert not found.notes


MESHES = (
    "none", "ddp=4", "fsdp1=8", "fsdp1=8,reshard=no", "fsdp1=8,offload=yes", "fsdp=8", "fsdp=8,reshard=no",
    "fsdp=8,reshard=2", "fsdp=8,offload=yes", "hsdp=2x4", "fsdp=4,tp=2", "fsdp=4,cp=2", "zero1=8", "zero2=8", "zero3=8",
)  # fmt: skip


@pytest.mark.parametrize("to", READ_BACK)
@pytest.mark.parametrize("parallel", MESHES)
def test_each_way_to_share_is_read_back_or_told(to: str, parallel: str) -> None:
    sayable = {"deepspeed": ("zero",), "hf": ("none", "ddp", "fsdp1=8", "fsdp=8", "hsdp", "zero")}.get(to, MESHES)
    if parallel.startswith(sayable):
        check(setup(parallel=parse_parallel(parallel)), to)
    else:
        with pytest.raises(UsageError):
            emit(setup(parallel=parse_parallel(parallel)), to)


@pytest.mark.parametrize("to", READ_BACK)
@settings(max_examples=100)
@given(made=setups)
def test_what_is_not_read_back_was_told(to: str, made: Setup) -> None:
    try:
        emit(made, to)
    except UsageError:
        return
    check(made, to)


@settings(max_examples=60)
@given(made=setups)
def test_adapters_beside_training_arguments_are_read_back(made: Setup) -> None:
    lora = made.job.lora
    try:
        emitted = emit(made, "hf")
    except UsageError:
        return
    assert ("adapter_config.json" in emitted.files) == (lora is not None)
    if lora is not None:
        with TemporaryDirectory() as folder:
            written(emitted, Path(folder))
            read = parse_lora(f"{folder}/adapter_config.json")
        assert (read.rank, read.alpha, read.targets, read.dropout, read.dora) == (
            lora.rank, lora.alpha, lora.targets, lora.dropout, lora.dora
        )  # fmt: skip


@pytest.mark.parametrize("to", FORMATS)
@settings(max_examples=30)
@given(made=setups)
def test_every_emission_says_who_made_it_of_what_and_what_was_predicted(to: str, made: Setup) -> None:
    try:
        emitted = emit(made, to)
    except UsageError:
        return
    head = "\n".join([next(iter(emitted.files.values())), *emitted.notes])
    assert made.memplan_version in head
    assert setup_hash(made) in head
    assert format_bytes(made.predicted.device_bytes) in head


@pytest.mark.parametrize("to", [name for name in FORMATS if name not in READ_BACK])
@settings(max_examples=30)
@given(made=setups)
def test_code_is_python(to: str, made: Setup) -> None:
    try:
        emitted = emit(made, to)
    except UsageError:
        return
    for content in emitted.files.values():
        compile(content, "emitted.py", "exec")


@pytest.mark.parametrize(
    ("to", "parallel"),
    [
        ("deepspeed", "fsdp=8"), ("deepspeed", "none"), ("deepspeed", "zero3=8,tp=2"), ("accelerate", "fsdp=8,pp=2"),
        ("accelerate", "ddp=4,tp=2"), ("hf", "fsdp=8,tp=2"), ("fsdp2", "ddp=2"), ("fsdp2", "fsdp=2,cp=2"),
        ("torchtitan", "zero2=8"), ("torchtitan", "fsdp1=8"), ("torch", "fsdp=8"), ("axolotl", "fsdp=8,ep=2"),
        ("accelerate", "hsdp=4x1,tp=2"), ("axolotl", "hsdp=4x1,cp=2"),
    ],
)  # fmt: skip
def test_what_a_framework_cannot_do_is_refused(to: str, parallel: str) -> None:
    with pytest.raises(UsageError, match=r"cannot say|this setup has none"):
        emit(setup(parallel=parse_parallel(parallel)), to)


def test_inference_has_no_configuration() -> None:
    with pytest.raises(UsageError, match="only training"):
        emit(setup(mode="inference"), "torch")


def test_axolotl_refuses_what_axolotl_refuses() -> None:
    with pytest.raises(UsageError, match="adamw-8bit"):
        emit(setup(parallel=parse_parallel("fsdp=8"), optimizer="adamw-8bit"), "axolotl")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "parallel", "typed"),
    [
        ("deepspeed", "zero3=4", []),
        ("hf", "zero2=4", []),
        ("accelerate", "fsdp=4", ["--batch-size", "4", "--optimizer", "adamw", "--grad-accum", "2"]),
    ],
)
def test_a_job_read_from_its_file_has_the_peak_that_was_predicted(
    to: str, parallel: str, typed: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if to != "accelerate" and find_spec("deepspeed") is None:
        pytest.skip("ZeRO is traced with DeepSpeed, which is not installed")
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "setup.json").write_text(
        write_setup(setup(parallel=parse_parallel(parallel), grad_accum=2, seq_len=None))
    )
    made = load_setup(tmp_path / "setup.json")
    emitted = written(emit(made, to), tmp_path)
    peaks = []
    for file, more in ((tmp_path / "setup.json", []), (emitted, typed)):
        words = ["estimate", str(tmp_path / "net.py"), "--gpu", "h100-80g", "--json", "--config", str(file)]
        assert main([*words, *more]) == 0
        peaks.append(json.loads(capfd.readouterr().out)["peak"]["device_bytes"])
    assert peaks[0] == peaks[1] > 0


NET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x):
        return x + torch.relu(self.inner(x))


def model():
    return nn.Sequential(*(Block() for _ in range(4)))


def batch(batch_size):
    return torch.randn(batch_size, 256)


def loss(output, batch):
    return output.float().square().mean()
"""
