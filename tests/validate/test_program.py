"""A program run for real beside what was predicted of it."""

import itertools
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.validate.predict import predict_here
from memplan.validate.records import AllocationStream
from memplan.validate.run import run_here

LOADED = """
import pathlib
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(1000, 64), torch.randint(10, (1000,)))
with torch.no_grad():
    print(float(model(data[:500][0]).sum()))
for epoch in range(100):
    for x, y in DataLoader(data, batch_size=32, shuffle=True, num_workers=2):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
WRITES = (
    LOADED
    + """
        torch.save(model.state_dict(), "model.pt")
        pathlib.Path("log.txt").write_text("x")
"""
)
VIEWS = (
    LOADED.replace("model(x)", "model(torch.autograd.Variable(x).view(-1, 64) * 2)")
    .replace(
        "for epoch",
        """class Read(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return torch.from_numpy(numpy.zeros(64, dtype="float32")) + 1, index % 10
data = Read()
for epoch""",
    )
    .replace("data[:500][0]", "torch.zeros(5, 64)")
    .replace("import pathlib", "import numpy\nimport pathlib")
)
ASKS = LOADED.replace(
    "for epoch",
    """class Drawn(torch.utils.data.Dataset):
    def __init__(self):
        self.order = torch.randperm(1000)
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        drawn = self.order[index].item()
        return torch.full((64,), float(drawn)), drawn % 10
data = Drawn()
for epoch""",
).replace("data[:500][0]", "torch.zeros(5, 64)")
RANKS = LOADED.replace(
    "optimizer =",
    "torch.distributed.init_process_group('nccl')\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n"
    "optimizer =",
)
FUNCTIONAL = """
import torch
from torch.func import functional_call, grad_and_value
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
weights = {name: each.detach() for name, each in net.named_parameters()}
def loss(weights, x, y):
    return torch.nn.functional.cross_entropy(functional_call(net, weights, (x,)), y)
for _ in range(50):
    gradients, value = grad_and_value(loss)(weights, torch.randn(128, 32), torch.randint(10, (128,)))
    weights = {name: each - 0.1 * gradients[name] for name, each in weights.items()}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec_of(text: str) -> JobSpec:
    Path("train.py").write_text(text)
    return JobSpec(target=ScriptTarget(path=Path("train.py")))


def real_stream(text: str) -> AllocationStream:
    run = run_here(spec_of(text), device="cpu", steps=4, traced_steps=4, seconds=60)
    assert run.steps == 4
    assert run.measured.stream is not None
    return run.measured.stream


def peaks(stream: AllocationStream) -> list[int]:
    """The most of set-up and of each step."""
    found, live = [], 0
    cuts = [0, *stream.marks, len(stream)]
    for start, end in itertools.pairwise(cuts):
        most = live
        for size in stream.sizes[start:end]:
            live += size
            most = max(most, live)
        found.append(most)
    return found


@pytest.mark.parametrize("text", [LOADED, WRITES, VIEWS, FUNCTIONAL], ids=["loader", "writes", "views", "functional"])
def test_a_real_run_is_as_predicted(text: str, folder: Path) -> None:
    prediction = predict_here(spec_of(text), load_profile("cpu"), steps=4)
    real = real_stream(text)
    allocated = [sum(size for size in stream.sizes if size > 16) for stream in (prediction.stream, real)]
    assert allocated[0] == allocated[1]
    # Python's numbers become tensors of up to 16 bytes, which traces leave out.
    assert peaks(real)[1:5] == pytest.approx(peaks(prediction.stream)[1:5], abs=32)
    assert {path.name for path in folder.iterdir()} <= {"train.py", "__pycache__"}


def test_a_program_is_a_rank_of_its_own(folder: Path) -> None:
    del folder
    assert len(real_stream(RANKS).marks) >= 4


def test_what_trains_nothing_is_said(folder: Path) -> None:
    del folder
    with pytest.raises(EstimateError, match="without a training step"):
        run_here(spec_of("print('nothing')"), device="cpu", steps=2, traced_steps=2, seconds=60)


def test_a_data_set_without_values_may_be_asked_for_some(folder: Path) -> None:
    del folder
    prediction = predict_here(spec_of(ASKS), load_profile("cpu"), steps=4)
    assert max(peaks(prediction.stream)) == pytest.approx(max(peaks(real_stream(ASKS))), rel=0.005)
    assert any("data set" in said for said in prediction.estimate.assumptions)


BY_WEIGHTS = "sampler=torch.utils.data.WeightedRandomSampler(torch.rand(1000), 1000)"
WEIGHTED = LOADED.replace("shuffle=True", BY_WEIGHTS)
LISTED = LOADED.replace("shuffle=True", "sampler=list(range(1000))")
OWN_ORDER = LOADED.replace("shuffle=True", "sampler=Own(data)").replace(
    "for epoch",
    """class Own(torch.utils.data.Sampler):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return 32
    def __iter__(self):
        yield from torch.where(self.data.tensors[1] < 20)[0][:32].tolist()
for epoch""",
)


@pytest.mark.parametrize("text", [WEIGHTED, OWN_ORDER, LISTED], ids=["weights", "labels", "a list"])
def test_a_sampler_draws_by_whatever_it_has(text: str, folder: Path) -> None:
    del folder
    prediction = predict_here(spec_of(text), load_profile("cpu"), steps=4)
    assert max(peaks(prediction.stream)) == pytest.approx(max(peaks(real_stream(text))), rel=0.005)


PACKED = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence
net = torch.nn.LSTM(8, 16, batch_first=True)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
lengths = torch.tensor([{lengths}])
for _ in range(9):
    packed = pack_padded_sequence(torch.randn(4, 40, 8), lengths, batch_first=True)
    net(packed)[0].data.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("lengths", ["40, 39, 38, 37", "9, 7, 3, 2"])
def test_what_set_up_knows_is_known_in_the_steps(lengths: str, folder: Path) -> None:
    del folder
    text = PACKED.format(lengths=lengths)
    prediction = predict_here(spec_of(text), load_profile("cpu"), steps=4)
    assert max(peaks(prediction.stream)) == pytest.approx(max(peaks(real_stream(text))), rel=0.001)
