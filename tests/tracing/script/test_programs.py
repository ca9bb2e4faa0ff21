"""Programs that train, as people write them: beside a target file of the same step, and beside real runs."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.tracing.cuda.release import VARIABLE
from memplan.tracing.script.loggers import Inert

TARGET = """
from net import build
import torch
from torch.nn import functional as F

def model():
    return build()

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(10, (batch_size,))

def loss(output, batch):
    return F.cross_entropy(output, batch[1])
"""
HEAD = """
import argparse, sys
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from net import build
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--device", default="cuda")
options = parser.parse_args()
model = build().to(options.device)
optimizer = torch.optim.AdamW(model.parameters())
"""
FROM_RANDOM = (
    HEAD
    + """
if __name__ == "__main__":
    for step in range(10_000):
        x = torch.randn(options.batch_size, 64).to(options.device)
        y = torch.randint(10, (options.batch_size,)).to(options.device)
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"{step}: {loss.item():.3f}")
"""
)
WITHOUT_GUARD = FROM_RANDOM.replace('if __name__ == "__main__":', "if True:")
WITH_LOADER = (
    HEAD
    + """
def main():
    data = TensorDataset(torch.randn(1000, 64), torch.randint(10, (1000,)))
    for epoch in range(100):
        for x, y in DataLoader(data, batch_size=options.batch_size, shuffle=True, num_workers=2):
            x, y = x.to(options.device), y.to(options.device)
            output = model(x)
            loss = F.cross_entropy(output, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
main()
"""
)


@pytest.mark.parametrize("text", [FROM_RANDOM, WITHOUT_GUARD, WITH_LOADER], ids=["random", "no guard", "loader"])
def test_a_program_needs_what_a_target_of_the_same_step_needs(
    text: str, folder: Path, estimated: Callable[..., Estimate]
) -> None:
    program = estimated(text, "--batch-size", "128")
    (folder / "target.py").write_text(TARGET)
    spec = JobSpec(target=FileTarget(path=Path("target.py")), batch_size=128)
    [target] = estimate_here(spec, [load_profile("h100-80g")], advice=False)
    assert program.peak.requested_bytes == target.peak.requested_bytes
    assert program.parameters == target.parameters
    assert program.repeats
    assert program.breakdown["parameter"] == target.breakdown["parameter"]
    assert program.options["optimizer"] == "AdamW"


def test_arguments_decide(estimated: Callable[..., Estimate]) -> None:
    small, large = (estimated(FROM_RANDOM, "--batch-size", size).peak.requested_bytes for size in ("32", "4096"))
    assert large - small >= (4096 - 32) * 256 * 4


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (FROM_RANDOM, ("--device", "cpu"), "puts nothing on the GPU"),
        (
            FROM_RANDOM.replace("F.cross_entropy(output, y)", "F.smooth_l1_loss(output[:, 0], output[:, 1].detach())"),
            ("--device", "cpu"),
            "puts nothing on the GPU",
        ),
        ("import torch\nprint('no training')\n", (), "ended without a training step"),
        (HEAD, ("--no-such",), "sys.exit(2)"),
        ("raise ValueError('broken')\n", (), "ValueError: broken"),
        (
            "import torch\ntorch.nn.init.trunc_normal_(torch.empty(4, 4).cuda())\nraise ValueError('broken')\n",
            (),
            "ValueError: broken",
        ),
    ],
    ids=["on the CPU", "a constant of a gradient", "trains nothing", "wrong arguments", "raises", "behind a loop"],
)
def test_what_cannot_be_answered_is_said(
    text: str, arguments: tuple[str, ...], said: str, estimated: Callable[..., Estimate]
) -> None:
    with pytest.raises(EstimateError) as caught:
        estimated(text, *arguments)
    assert said in str(caught.value)


def test_files_are_written_nowhere_and_nothing_is_deleted(folder: Path, estimated: Callable[..., Estimate]) -> None:
    (folder / "kept.txt").write_text("kept")
    effects = """
import os, subprocess, shutil
os.makedirs("out", exist_ok=True)
with open("out/log.txt", "w") as file:
    file.write("hello")
with open("out/log.txt") as file:
    assert file.read() == "hello"
with open("kept.txt", "a") as file:
    file.write(" and more")
with open("kept.txt") as file:
    assert file.read() == "kept and more"
torch.save(model.state_dict(), "out/model.pt")
for dangerous in (lambda: os.remove("kept.txt"), lambda: shutil.rmtree("."), lambda: subprocess.run(["true"])):
    try:
        dangerous()
    except PermissionError:
        pass
    else:
        raise AssertionError
"""
    before = {path.name for path in folder.iterdir()}
    estimate = estimated(HEAD + effects + FROM_RANDOM.removeprefix(HEAD))
    assert {path.name for path in folder.iterdir()} - before <= {"train.py", "__pycache__"}
    assert (folder / "kept.txt").read_text() == "kept"
    assert any("was refused" in sentence for sentence in estimate.assumptions)


def test_checkpoints_of_its_own_are_renamed_and_removed(folder: Path, estimated: Callable[..., Estimate]) -> None:
    saves = """
import os
torch.save(model.state_dict(), "new.pt")
os.replace("new.pt", "last.pt")
with open("log.tmp", "w") as file:
    file.write("hello")
os.rename("log.tmp", "log.txt")
with open("log.txt") as file:
    assert file.read() == "hello"
assert not os.path.exists("log.tmp")
os.remove("log.txt")
assert not os.path.exists("log.txt")
"""
    assert estimated(HEAD + saves + FROM_RANDOM.removeprefix(HEAD)).repeats
    assert {path.name for path in folder.iterdir()} <= {"train.py", "net.py", "__pycache__"}


def test_modules_that_compile_calls_of_torch_are_imported(estimated: Callable[..., Estimate]) -> None:
    scripted = """
import warnings
warnings.simplefilter("ignore")
@torch.jit.script
def one(number: int):
    return torch.tensor(number)
"""
    assert estimated(HEAD + scripted + FROM_RANDOM.removeprefix(HEAD)).repeats


def test_what_torchscript_cannot_compile_here_runs_as_python(estimated: Callable[..., Estimate]) -> None:
    scripted = """
import warnings
warnings.simplefilter("ignore")
@torch.jit.script
def dropped(x):
    return torch.nn.functional.dropout(torch.save, 0.5)
@torch.jit.script
class Halved:
    def __init__(self, number: float):
        self.number = number / 2
assert Halved(2.0).number == 1.0
"""
    estimate = estimated(HEAD + scripted + FROM_RANDOM.removeprefix(HEAD))
    assert [said for said in estimate.assumptions if "TorchScript" in said] == [
        "dropped() runs as Python: TorchScript cannot compile it here"
    ]


def test_text_is_encoded_as_tiktoken_would(estimated: Callable[..., Estimate]) -> None:
    encoded = """
import tiktoken
encoding = tiktoken.get_encoding("gpt2")
tokens = encoding.encode("to be or not to be", allowed_special={"<|endoftext|>"})
assert len(tokens) == 6 and tokens[:2] == tokens[4:] and max(tokens) < encoding.n_vocab == 50257
assert len(encoding.decode([*tokens, encoding.eot_token]).split()) == 7
assert tiktoken.encoding_for_model("gpt-4o").n_vocab == 200019
"""
    estimate = estimated(HEAD + encoded + FROM_RANDOM.removeprefix(HEAD))
    assert "tiktoken's gpt2 is not downloaded: it makes a token of each word" in estimate.assumptions
    assert "tiktoken" not in sys.modules


def test_ranks_of_mpi_that_is_not_installed_are_played(estimated: Callable[..., Estimate]) -> None:
    if importlib.util.find_spec("mpi4py"):
        pytest.skip("mpi4py is installed")
    met = """
import os, socket
import numpy
from mpi4py import MPI
comm = MPI.COMM_WORLD
assert (comm.rank, comm.Get_size(), comm.bcast("hello", root=0)) == (0, 1, "hello")
assert comm.allreduce(3, op=MPI.SUM) == 3 and comm.gather("x") == ["x"] and comm.Split(0).size == 1
summed = numpy.zeros(2)
comm.Allreduce(numpy.ones(2), summed, op=MPI.SUM)
assert summed.tolist() == [1, 1]
comm.Barrier()
meeting = socket.socket()
meeting.bind(("", 0))
meeting.listen(1)
os.environ["MASTER_PORT"] = str(comm.bcast(meeting.getsockname()[1]))
meeting.close()
"""
    estimate = estimated(HEAD + met + FROM_RANDOM.removeprefix(HEAD))
    assert "mpi4py is not installed: other ranks are taken to send what this one has" in estimate.assumptions
    assert "mpi4py" not in sys.modules


def test_trackers_take_what_they_are_told(estimated: Callable[..., Estimate]) -> None:
    told = """
import wandb, tensorboard_logger
from torch.utils.tensorboard.summary import hparams
run = wandb.init(project="p", config={"lr": 1})
first, second, third = hparams({}, {})
assert [*run] == [] and first.summary(1) is not None
import importlib.metadata
assert importlib.metadata.metadata("tensorboard") is not None and importlib.metadata.version("tensorboard")
"""
    assert "wandb is told nothing" in estimated(HEAD + told + FROM_RANDOM.removeprefix(HEAD)).assumptions


def test_its_own_modules_keep_their_names(folder: Path, estimated: Callable[..., Estimate]) -> None:
    (folder / "datasets.py").write_text("SIZE = 64\n")
    told = "from datasets import SIZE\nassert SIZE == 64\n"
    assert estimated(HEAD + told + FROM_RANDOM.removeprefix(HEAD)).peak.requested_bytes


def test_the_package_of_its_own_project_is_there_as_if_installed(
    folder: Path, estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, scripts = folder / "a_package_of_its_own", folder / "scripts"
    package.mkdir()
    scripts.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("SIZE = 64\n")
    told = "from a_package_of_its_own.sizes import SIZE\nassert SIZE == 64\n"
    (folder / "setup.py").touch()
    monkeypatch.chdir(scripts)
    (scripts / "train.py").write_text(HEAD + told + FROM_RANDOM.removeprefix(HEAD))
    spec = JobSpec(target=ScriptTarget(path=Path("train.py")))
    (scripts / "net.py").write_text((folder / "net.py").read_text())
    [estimate] = estimate_here(spec, [load_profile("h100-80g")], advice=False)
    assert "the package a_package_of_its_own is taken from the program's project, as if it were installed" in (
        estimate.assumptions
    )


def test_a_compiled_model_has_its_parameters(estimated: Callable[..., Estimate]) -> None:
    text = FROM_RANDOM.replace("build().to(options.device)", "torch.compile(build().to(options.device))")
    eager, compiled = estimated(FROM_RANDOM), estimated(text, compile="aot_eager")
    assert compiled.breakdown["parameter"] == eager.breakdown["parameter"] > 0
    assert {owner.module for owner in compiled.owners if owner.category == "parameter"} == {"0", "2"}


def test_an_installed_tiktoken_reads_files(
    folder: Path, estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "site" / "tiktoken"
    package.mkdir(parents=True)
    text = "def get_encoding(name):\n    raise OSError('no net')\n\n"
    (package / "__init__.py").write_text(text + "encoding_for_model = list_encoding_names = get_encoding\n")
    (package / "load.py").write_text("def load_tiktoken_bpe(path):\n    return {path: 0}\n")
    monkeypatch.syspath_prepend(str(package.parent))
    reads = """
import tiktoken
from tiktoken.load import load_tiktoken_bpe
assert load_tiktoken_bpe("a.model") == {"a.model": 0}
assert tiktoken.get_encoding("gpt2").n_vocab == 50257
"""
    try:
        assert estimated(HEAD + reads + FROM_RANDOM.removeprefix(HEAD)).repeats
        with pytest.raises(OSError, match="no net"):
            importlib.import_module("tiktoken").get_encoding("gpt2")
    finally:
        for name in ("tiktoken.load", "tiktoken"):
            sys.modules.pop(name, None)


def test_a_program_may_ask_for_pythons_import_path(estimated: Callable[..., Estimate]) -> None:
    asks = """
import json, subprocess
asked = [sys.executable, "-c", "import sys, json; print(json.dumps(sys.path))"]
assert json.loads(subprocess.check_output(asked)) == sys.path
"""
    assert estimated(HEAD + asks + FROM_RANDOM.removeprefix(HEAD)).repeats


def test_a_model_is_shared_with_other_processes(estimated: Callable[..., Estimate]) -> None:
    shared = HEAD.replace("build().to(options.device)", "build().share_memory().to(options.device)")
    assert shared != HEAD
    text = shared + "model.share_memory()\n" + FROM_RANDOM.removeprefix(HEAD)
    assert estimated(text).peak.requested_bytes == estimated(FROM_RANDOM).peak.requested_bytes


ACCUMULATES = (
    HEAD
    + """
for step in range(10_000):
    output = model(torch.randn(options.batch_size, 64, device=options.device))
    (F.mse_loss(output, torch.zeros_like(output)) / 4).backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""
)
SHORT_AT_THE_END = (
    HEAD
    + """
for epoch in range(100):
    for index in range(4):
        output = model(torch.randn(options.batch_size, 64, device=options.device))
        F.mse_loss(output, torch.zeros_like(output)).backward()
        if index % 3 == 2 or index == 3:
            optimizer.step()
            optimizer.zero_grad()
"""
)
SELDOM_TWICE = (
    HEAD
    + """
for step in range(10_000):
    for _ in range(2 if step % 16 == 0 else 1):
        output = model(torch.randn(options.batch_size, 64, device=options.device))
        F.mse_loss(output, torch.zeros_like(output)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
BY_HAND = (
    HEAD.replace("optimizer = torch.optim.AdamW(model.parameters())", "")
    + """
for step in range(10_000):
    loss = model(torch.randn(options.batch_size, 64, device=options.device)).square().mean()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
"""
)
ADVERSARIES = (
    HEAD
    + """
other = build().to(options.device)
second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
for step in range(10_000):
    for net, steps in ((model, optimizer), (other, second)):
        loss = net(torch.randn(options.batch_size, 64, device=options.device)).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
"""
)


@pytest.mark.parametrize(
    ("text", "optimizers"),
    [(ACCUMULATES, "AdamW"), (BY_HAND, "no torch optimizer"), (ADVERSARIES, "AdamW + SGD")],
    ids=["accumulation", "by hand", "two optimizers"],
)
def test_a_step_is_a_period_of_the_program(text: str, optimizers: str, estimated: Callable[..., Estimate]) -> None:
    estimate = estimated(text)
    assert estimate.repeats
    assert estimate.steps_traced <= 3
    assert estimate.options["optimizer"] == optimizers


def test_a_step_that_accumulates_less_does_not_stand_for_the_others(estimated: Callable[..., Estimate]) -> None:
    always_three = SHORT_AT_THE_END.replace("range(4)", "range(3)")
    short, whole = estimated(SHORT_AT_THE_END), estimated(always_three)
    assert short.peak.requested_bytes == whole.peak.requested_bytes
    assert short.steps_traced == 3
    assert short.repeats


def test_a_step_that_is_seldom_and_takes_more_is_told(estimated: Callable[..., Estimate]) -> None:
    assert any("step 1 has 2 backward passes" in each for each in estimated(SELDOM_TWICE).assumptions)
    assert not any("backward passes" in each for each in estimated(ACCUMULATES).assumptions)


def test_modules_and_process_are_as_before(estimated: Callable[..., Estimate]) -> None:
    argv, path, modules = list(sys.argv), list(sys.path), set(sys.modules)
    estimated(FROM_RANDOM)
    assert (sys.argv, sys.path) == (argv, path)
    assert "train" not in set(sys.modules) - modules
    assert not torch.distributed.is_initialized()


def test_a_model_among_ranks_of_its_own_runs_alone(estimated: Callable[..., Estimate]) -> None:
    wrapped = FROM_RANDOM.replace(
        "optimizer =",
        "torch.distributed.init_process_group('nccl')\n"
        "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])\n"
        "torch.distributed.barrier()\noptimizer =",
    )
    estimate = estimated(wrapped)
    assert any("group of one rank" in sentence for sentence in estimate.assumptions)
    assert estimate.parameters == estimated(FROM_RANDOM).parameters
    assert not torch.distributed.is_initialized()


def test_weights_of_the_net_are_left_out(estimated: Callable[..., Estimate]) -> None:
    load = "model.load_state_dict(torch.hub.load_state_dict_from_url('https://example.org/net.pth'))\noptimizer ="
    estimate = estimated(FROM_RANDOM.replace("optimizer =", load))
    assert any("net.pth" in sentence for sentence in estimate.assumptions)
    assert estimate.peak.requested_bytes == estimated(FROM_RANDOM).peak.requested_bytes


@pytest.mark.parametrize("size", [8, 2000])
def test_values_of_the_host_decide(size: int, estimated: Callable[..., Estimate]) -> None:
    read = f"""
import numpy
lengths = torch.from_numpy(numpy.array([3, {size}, 5]))
size = (lengths + 0).max().item()
"""
    by_value = FROM_RANDOM.replace("optimizer =", read + "optimizer =").replace("options.batch_size", "size")
    expected = estimated(FROM_RANDOM, "--batch-size", str(size)).peak.requested_bytes
    assert estimated(by_value).peak.requested_bytes == expected


def test_a_program_that_ends_by_itself_is_answered_by_its_steps(estimated: Callable[..., Estimate]) -> None:
    short = (
        FROM_RANDOM.replace("range(10_000)", "range(1)") + "    model(torch.randn(65536, 64, device=options.device))\n"
    )
    estimate = estimated(short)
    assert any("ended by itself after 1 traced step" in sentence for sentence in estimate.assumptions)


@pytest.mark.parametrize("text", [FROM_RANDOM, WITH_LOADER], ids=["random", "loader"])
def test_a_batch_that_goes_to_the_device_is_input(text: str, estimated: Callable[..., Estimate]) -> None:
    breakdown = estimated(text, "--batch-size", "16").breakdown
    assert breakdown["input"] == 16 * 64 * 4 + 16 * 8


def test_a_loaders_batches_are_counted_once_on_the_cpu(estimated: Callable[..., Estimate]) -> None:
    small, large = (
        estimated(WITH_LOADER, "--device", "cpu", "--batch-size", size, gpu="cpu").breakdown["input"]
        for size in ("32", "64")
    )
    assert large == 2 * small
    # The batch and the one before, which the loop's variables hold until they are bound again.
    assert small in (32 * (64 * 4 + 8), 2 * 32 * (64 * 4 + 8))


EVALUATES = (
    HEAD
    + """
def batches(size):
    return DataLoader(TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,))), batch_size=size)

for epoch in range(100):
    for x, y in batches(options.batch_size):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(options.device)), y.to(options.device)).backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for x, y in batches(1024):
            right += (model(x.to(options.device)).argmax(1) == y.to(options.device)).sum().item()
    print(f"{right / 4096:.1%}")
"""
)


def _high(estimate: Estimate) -> int:
    assert estimate.peak.allocated_interval is not None
    return estimate.peak.allocated_interval.high_bytes


def test_what_follows_an_epoch_is_in_the_interval(
    estimated: Callable[..., Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "2.14.1")  # Later ones take more work space for each product than is asked for here.
    epochs = estimated(EVALUATES)
    never = estimated(EVALUATES.replace("for x, y in batches(1024)", "for x, y in ()"))
    assert epochs.peak.requested_bytes == never.peak.requested_bytes, "the figure is that of the steps"
    # The second batch comes while the first and the layer before the last of its results are there.
    grown = _high(epochs) - _high(never)
    assert grown > 1024 * 256 * 4
    assert epochs.peak.device_bytes < epochs.peak.after_epoch_bytes <= epochs.peak.high_bytes
    assert never.peak.after_epoch_bytes == 0
    assert any("what follows an epoch" in said and "a line of its own" in said for said in epochs.assumptions)
    assert any("takes no more than the steps" in said for said in never.assumptions)


def test_an_epoch_that_cannot_be_followed_to_its_end_is_only_named(estimated: Callable[..., Estimate]) -> None:
    breaks = EVALUATES.replace("    right = 0\n", "    raise SystemExit(1)\n")
    found = estimated(breaks)
    assert found.repeats
    assert any("beyond these steps" in said for said in found.assumptions)
    assert not any("what follows an epoch" in said for said in found.assumptions)


def test_what_lies_beyond_the_steps_is_said(estimated: Callable[..., Estimate]) -> None:
    assert any("beyond these steps" in said for said in estimated(FROM_RANDOM).assumptions)


FROZEN = """
import torch
from torch import nn

{made}
net[0].requires_grad_(False)
optimizer = torch.optim.SGD(net[1].parameters(), lr=0.1)
for _ in range(5):
    net(torch.ones(2, 1000)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MADE = "net = nn.Sequential(nn.Linear(1000, 1000), nn.Linear(1000, 10))"
ON_META = f'with torch.device("meta"):\n    {MADE}\n'


EMPTY = 'net = net.to_empty(device="cpu")'
ASSIGNED = """
for each in net:
    each.load_state_dict({name: torch.empty(part.shape) for name, part in each.state_dict().items()}, assign=True)
"""


@pytest.mark.parametrize("moved", [EMPTY, ASSIGNED])
def test_what_is_made_on_the_meta_device_takes_no_memory(moved: str, estimated: Callable[..., Estimate]) -> None:
    plain, empty = (estimated(FROZEN.format(made=each), gpu="cpu") for each in (MADE, ON_META + moved))
    assert empty.peak.requested_bytes == plain.peak.requested_bytes


SHOWS = """
import matplotlib.pyplot as plt
plt.switch_backend("agg")
figure, (left, right) = plt.subplots(1, 2)
"""


def test_what_only_shows_things_may_be_missing(estimated: Callable[..., Estimate]) -> None:
    plain, shown = estimated(FROM_RANDOM), estimated(SHOWS + FROM_RANDOM.replace("print(", "left.plot("))
    assert shown.peak.device_bytes == plain.peak.device_bytes
    if importlib.util.find_spec("matplotlib") is None:
        assert "matplotlib is not installed; it is told nothing" in shown.not_modelled


def test_a_bar_that_shows_nothing_hands_on_what_it_is_about() -> None:
    bars: Any = Inert("tqdm")
    with bars.tqdm(iterable=[3, 4], desc="epoch") as bar:
        bar.set_postfix(loss=1)
        assert (len(bar), list(bar)) == (2, [3, 4])
    assert list(bars.trange(2, 4)) == [2, 3]
