"""The law of every file that memplan writes: what is not read back from it was told, there and on the screen."""

import ast
import json
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from memplan.cli.app import main
from memplan.emit.formats import emit
from memplan.emit.records import FORMATS
from memplan.errors import UsageError
from memplan.job.adapters import parse_lora
from memplan.job.config_files.read import FileSettings, read_config
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Setup, load_setup, setup_hash, write_setup
from memplan.job.spec import JobSpec
from memplan.job.zero import Zero
from memplan.units import Bytes, format_bytes
from tests.emit.files import written
from tests.emit.setups import CONFIGURATION, setup, setups

OTHERWISE = ("use_liger_kernel", "chunked_cross_entropy")
"""Settings that a file has in the place of what the setup says, and that are told when they are read."""


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
        beside = {name for name in ("lora", "quantize") if to == "hf"}
    assert set(forgotten(made.job, found, emitted.notes)) <= beside
    assert not [note for note in found.notes if not any(f": {name} changes" in note for name in OTHERWISE)]
    comments = "".join(said_in(name, content) for name, content in emitted.files.items())
    for note in emitted.notes:
        assert note in comments


def said_in(name: str, content: str) -> str:
    """What a file says to people."""
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(content), clean=False) or ""
    if name.endswith(".json"):
        return "\n".join(json.loads(content).get("_memplan", []))
    return content


MESHES = (
    "none", "ddp=4", "fsdp1=8", "fsdp1=8,reshard=no", "fsdp1=8,offload=yes", "fsdp=8", "fsdp=8,reshard=no",
    "fsdp=8,reshard=2", "fsdp=8,offload=yes", "hsdp=2x4", "fsdp=4,tp=2", "fsdp=4,cp=2", "zero1=8", "zero2=8", "zero3=8",
)  # fmt: skip


SAYABLE = {
    "deepspeed": ("zero",),
    "hf": ("none", "ddp", "fsdp1=8", "fsdp=8", "hsdp", "zero"),
    "fsdp2": ("fsdp=8", "hsdp"),
    "torchtitan": ("none", "ddp", "fsdp=", "hsdp"),
    "torch": ("none", "ddp"),
}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("parallel", MESHES)
def test_each_way_to_share_is_read_back_or_told(to: str, parallel: str) -> None:
    sayable = SAYABLE.get(to, MESHES)
    if parallel.startswith(sayable):
        check(setup(parallel=parse_parallel(parallel)), to)
    else:
        with pytest.raises(UsageError):
            emit(setup(parallel=parse_parallel(parallel)), to)


@pytest.mark.parametrize("to", FORMATS)
@given(made=setups)
def test_what_is_not_read_back_was_told(to: str, made: Setup) -> None:
    try:
        emit(made, to)
    except UsageError:
        return
    check(made, to)


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


@pytest.mark.parametrize("to", ["fsdp2", "torchtitan", "torch"])
@settings(max_examples=30)
@given(made=setups)
def test_code_is_python(to: str, made: Setup) -> None:
    try:
        emitted = emit(made, to)
    except UsageError:
        return
    for name, content in emitted.files.items():
        if name.endswith(".py"):
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


SAVING = {"optimizer_in_backward": True, "loss_chunks": 8, "offload_activations": True, "checkpoint": "full"}


@pytest.mark.parametrize(
    ("to", "parallel", "lost"),
    [
        ("torch", "none", set()),
        ("fsdp2", "fsdp=8", set()),
        # Clipping is always on there.
        ("torchtitan", "fsdp=8", {"optimizer_in_backward", "offload_activations", "clip_grad_norm"}),
        ("hf", "none", {"optimizer_in_backward", "loss_chunks", "offload_activations", "loop"}),
        ("axolotl", "none", {"optimizer_in_backward", "loss_chunks", "precision"}),
        ("accelerate", "fsdp=8", {"optimizer_in_backward", "loss_chunks", "offload_activations"}),
        ("deepspeed", "zero2=8", {"optimizer_in_backward", "loss_chunks", "offload_activations", "checkpoint"}),
    ],
)
def test_the_peak_without_what_a_file_does_not_carry_is_traced_and_stated(
    to: str, parallel: str, lost: set[str]
) -> None:
    made = setup(parallel=parse_parallel(parallel), **SAVING)
    traced = []

    def peak(job: JobSpec) -> Bytes:
        traced.append(
            {field.name for field in fields(JobSpec) if getattr(job, field.name) != getattr(made.job, field.name)}
        )
        return Bytes(5 << 30)

    emitted = emit(made, to, peak)
    assert traced == ([lost] if lost else [])
    stated = [note for note in emitted.notes if "device peak 5.00 GiB (traced), 2.00 GiB more" in note]
    assert len(stated) == len(traced)


@pytest.mark.parametrize(
    ("gpu", "precision", "is_told"),
    [("t4", "bf16-mixed", True), ("t4", "fp16-mixed", False), ("h100-80g", "bf16", False)],
)
def test_bfloat16_on_a_card_that_emulates_it_is_told(gpu: str, precision: str, is_told: bool) -> None:
    notes = emit(replace(setup(precision=precision), gpu=gpu), "torch").notes
    assert any(note.startswith("bfloat16: t4 has no cores for it") for note in notes) == is_told


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("to", ["hf", "axolotl"])
def test_that_the_trainer_would_clip_by_itself_is_told(to: str, clip: float | None) -> None:
    notes = emit(setup(clip_grad_norm=clip), to).notes
    assert any(note.startswith("max_grad_norm 0.0") for note in notes) == (clip is None)


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


def test_a_file_for_trainer_says_what_trainer_takes() -> None:
    seen: list[JobSpec] = []

    def peak(job: JobSpec) -> Bytes:
        seen.append(job)
        return Bytes(5 << 30)

    [note] = [note for note in emit(setup(), "hf", peak).notes if "in Trainer" in note]
    assert note == "in Trainer, not in a loop written by hand: device peak 5.00 GiB (traced), 2.00 GiB more"
    assert [job.loop for job in seen] == ["trainer"]
    # What Trainer does not do, such as to share a model by itself, it is not asked about.
    assert not any("in Trainer" in note for note in emit(setup(parallel=parse_parallel("ddp=2")), "hf", peak).notes)
