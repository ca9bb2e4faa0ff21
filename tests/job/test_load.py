"""Target files and modules become callables, each with the line it came from."""

import pickle
import sys
import types
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memplan.errors import EstimateError, ExitCode, UsageError
from memplan.job.inputs import parse_input
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec, ModuleTarget

HEAD = "import torch\nfrom torch import nn\n"
BATCH = "def batch(batch_size):\n    return torch.randn(batch_size, 3)\n"
NET = (
    "class Net(nn.Module):\n"
    "    def __init__(self, width=3):\n"
    "        super().__init__()\n"
    "        self.head = nn.Linear(width, 1)\n"
    "    def forward(self, x):\n"
    "        return self.head(x)\n"
)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a file and load it; what was imported is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write_and_load(text, *, factory=None, name="model.py", **options):
        Path(name).write_text(HEAD + text)
        return load_source(JobSpec(target=FileTarget(path=Path(name), factory=factory), **options))

    yield write_and_load
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def refused(call, *args, **options):
    with pytest.raises(UsageError) as caught:
        call(*args, **options)
    assert caught.value.exit_code == ExitCode.USAGE == 2
    return caught.value


def test_every_function_with_its_line(load):
    source = load(
        NET
        + "@torch.no_grad()\ndef model():\n    return Net()\n"
        + BATCH
        + "def loss(output, batch):\n    return output.mean()\n"
        + "def optimizer(parameters):\n    return torch.optim.SGD(parameters)\n"
        + "def train_step(model, optimizer, batch):\n    return model(batch).mean()\n"
    )
    assert source.provenance == {
        "model": "model.py:10",
        "batch": "model.py:12",
        "loss": "model.py:14",
        "optimizer": "model.py:16",
        "train_step": "model.py:18",
    }
    model, batch = source.model(), source.batch(4, None)
    assert batch.shape == (4, 3)
    assert source.loss(model(batch), batch).shape == ()
    assert isinstance(source.optimizer(model.parameters()), torch.optim.SGD)
    assert source.train_step(model, None, batch).shape == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NET, 3),
        (NET + "class Block(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n", 3),
        (NET + "net = Net()\n", 9),
        (NET + "criterion = nn.CrossEntropyLoss()\nnet = Net()\n", 10),
        (NET + "def build() -> Net:\n    return Net()\n", 9),
        (NET + "def build() -> 'nn.Module':\n    return Net()\n_hidden = Net()\n", 9),
        ("if True:\n    def model():\n        return nn.Linear(3, 1)\n", 4),
        ("def inner():\n    model = 1\nmodel = nn.Linear(3, 1)\n", 5),
    ],
)
def test_the_only_candidate_is_taken(load, text, line):
    source = load(text + BATCH)
    assert source.provenance["model"] == f"model.py:{line}"
    assert isinstance(source.model(), torch.nn.Module)


def test_several_candidates_are_listed(load):
    error = refused(load, NET + "class Other(nn.Module):\n    pass\n" + BATCH)
    assert "Net, Other" in error.what
    assert "model.py:Other" in (error.hint or "")
    assert (
        load(NET + "class Other(nn.Module):\n    pass\n" + BATCH, factory="Other").provenance["model"] == "model.py:9"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def build():\n    pass\n",
    ],
)
def test_no_candidate(load, text):
    error = refused(load, text + BATCH)
    assert "model.py has no model" in error.what
    assert "def model()" in (error.hint or "")


def test_a_class_that_needs_arguments_is_shown_as_it_is_typed(load):
    text = "class Net(nn.Module):\n    def __init__(self, width, depth: int = 2):\n        super().__init__()\n"
    error = refused(load, text + BATCH)
    assert "model.py has no model that needs no arguments" in error.what
    assert "model.py:Net(width=512)" in (error.hint or "")
    error = refused(load, text + BATCH, factory="Net")
    assert "width, needed\n    depth: int = 2" in error.what
    assert load(text + BATCH, factory="Net(width=3)").arguments == {"width": 3}


def test_imported_classes_are_no_candidates(load):
    refused(load, "from torch.nn import Identity, CrossEntropyLoss\n" + BATCH)


def test_missing_factory_offers_the_nearest(load):
    error = refused(load, NET + BATCH, factory="Nat")
    assert "no 'Nat'" in error.what
    assert "Net" in (error.hint or "")


@pytest.mark.parametrize("text", ["def model(width):\n    return 0\n", "model = 'gpt2'\n"])
def test_model_that_cannot_be_called(load, text):
    assert "model" in refused(load, text + BATCH).what


def test_a_factory_that_returns_no_module(load):
    with pytest.raises(EstimateError, match=r"model\(\) returned a dict") as caught:
        load("def model():\n    return {}\n" + BATCH).model()
    assert caught.value.exit_code == ExitCode.UNKNOWN == 3


def test_a_ready_instance_is_fake_under_fake_tensors(load):
    source = load("net = nn.Linear(3, 1)\n" + BATCH)
    with FakeTensorMode() as mode:
        weight = source.model().weight
    assert getattr(weight, "fake_mode", None) is mode


def test_the_first_ready_instance_is_freed_before_the_next_is_built(load):
    Path("tally.py").write_text("import weakref\nLIVE = weakref.WeakSet()\nCOUNTS = []\n")
    count = "from tally import LIVE, COUNTS\nCOUNTS.append(len(LIVE))\nnet = nn.Linear(3, 1)\nLIVE.add(net)\n"
    source = load(count + BATCH)
    assert sys.modules["model"].net is not None
    assert source.model() is sys.modules["model"].net
    assert sys.modules["tally"].COUNTS == [0, 0]


def test_without_a_batch_the_input_is_left_open(load):
    assert load(NET).batch is None


def test_inputs_take_the_place_of_batch(load):
    inputs = (parse_input("x=float32[B,S,3]"),)
    source = load(NET + BATCH, inputs=inputs, seq_len=5)
    assert source.provenance["batch"] == "--input"
    assert source.batch(2, 5)["x"].shape == (2, 5, 3)
    assert load(NET, inputs=inputs).batch(1, 2)["x"].shape == (1, 2, 3)


def test_a_sequence_length_that_no_input_uses(load):
    assert "sequence length" in refused(load, NET, inputs=(parse_input("x=float32[B,3]"),), seq_len=5).what


@pytest.mark.parametrize(
    ("signature", "given", "expected", "default"),
    [
        ("batch_size", None, (4,), None),
        ("n", None, (4,), None),
        ("batch_size, device='cpu'", None, (4, "cpu"), None),
        ("batch_size, seq_len=None", None, (4, None), None),
        ("batch_size, seq_len=None", 7, (4, 7), None),
        ("batch_size, seq_len=512", None, (4, 512), 512),
        ("batch_size, seq_len=512", 7, (4, 7), 512),
        ("batch_size, seq_len", 7, (4, 7), None),
        ("n, length", 7, (4, 7), None),
        ("batch_size, device='cpu', seq_len=2", 7, (4, "cpu", 7), 2),
    ],
)
def test_signatures_of_batch(load, signature, given, expected, default):
    names = ", ".join(part.split("=")[0] for part in signature.split(", "))
    source = load(NET + f"def batch({signature}):\n    return ({names},)\n", seq_len=given)
    assert source.batch(4, given) == expected
    assert source.default_seq_len == default
    assert source.provenance.get("seq_len") == ("model.py:9" if default is not None and given is None else None)


@pytest.mark.parametrize(
    ("signature", "given", "message"),
    [
        ("", None, "cannot be called as batch(batch_size)"),
        ("a, b, c", None, "cannot be called as batch(batch_size)"),
        ("batch_size", 7, "sequence length"),
        ("batch_size, seq_len", None, "needs a sequence length"),
        ("n, length", None, "needs a sequence length"),
    ],
)
def test_wrong_signatures_of_batch(load, signature, given, message):
    error = refused(load, NET + f"def batch({signature}):\n    return 0\n", seq_len=given)
    assert message in error.what
    assert error.where == "model.py:9"


@pytest.mark.parametrize(
    "text", ["def loss(output):\n    return 0\n", "def optimizer():\n    return 0\n", "loss = 3\n"]
)
def test_other_functions_are_checked(load, text):
    assert refused(load, NET + text + BATCH).where == "model.py:9"


def test_none_is_no_function(load):
    assert load(NET + "loss = None\n" + BATCH).loss is None


def test_a_loss_module_is_a_loss(load):
    assert load(NET + "loss = nn.MSELoss()\n" + BATCH).loss(torch.ones(2), torch.zeros(2)) == 1


def test_siblings_dataclasses_and_pickles_work(load):
    Path("layers.py").write_text("WIDTH = 3\n")
    source = load(
        "from dataclasses import dataclass\nfrom layers import WIDTH\n"
        "@dataclass\nclass Config:\n    width: int = WIDTH\n"
        "def model():\n    return nn.Linear(Config().width, 1)\n"
        "def batch(batch_size):\n    return Config()\n"
    )
    assert source.model().in_features == 3
    assert pickle.loads(pickle.dumps(source.batch(1, None))).width == 3


def test_a_file_called_like_a_loaded_module_does_not_replace_it(load):
    assert isinstance(load(NET + BATCH, name="types.py").model(), torch.nn.Module)
    assert sys.modules["types"] is types


def test_loading_twice_sees_the_change(load):
    assert load("def model():\n    return nn.Linear(3, 1)\n" + BATCH).model().in_features == 3
    assert load("def model():\n    return nn.Linear(44, 1)\n" + BATCH).model().in_features == 44


def test_modules_load_from_the_current_folder(load, tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text("")
    (tmp_path / "zoo" / "layers.py").write_text("WIDTH = 3\n")
    text = HEAD + "from .layers import WIDTH\ndef net():\n    return nn.Linear(WIDTH, 1)\n" + BATCH
    (tmp_path / "zoo" / "nets.py").write_text(text)
    source = load_source(JobSpec(target=ModuleTarget(module="zoo.nets", factory="net")))
    assert source.model().in_features == 3
    assert source.provenance["model"] == str(Path("zoo/nets.py:4"))


@pytest.mark.parametrize("name", ["no_such_package.nets", "no_such_module"])
def test_a_module_that_does_not_exist_is_a_usage_error(load, name):
    error = refused(load_source, JobSpec(target=ModuleTarget(module=name, factory="net")))
    assert f"no module '{name.partition('.')[0]}'" in error.what


def test_a_module_whose_import_fails_is_user_code(load, tmp_path):
    (tmp_path / "broken_zoo.py").write_text("import no_such_package\n")
    with pytest.raises(EstimateError) as caught:
        load_source(JobSpec(target=ModuleTarget(module="broken_zoo", factory="net")))
    assert caught.value.where == "broken_zoo.py:1"


@pytest.mark.parametrize("function", ["model()", "batch()", "loss()", "optimizer()", "train_step()"])
def test_what_each_function_raises_is_told_with_its_line(load, function):
    texts = {
        "model()": "def model():\n    {}return nn.Linear(3, 1)\n",
        "batch()": "def batch(n):\n    {}return n\n",
        "loss()": "def loss(output, batch):\n    {}return output\n",
        "optimizer()": "def optimizer(parameters):\n    {}return 0\n",
        "train_step()": "def train_step(model, optimizer, batch):\n    {}return 0\n",
    }
    text = "".join(each.format("1 / 0; " if name == function else "") for name, each in texts.items())
    source = load(text)
    arguments = {"model()": (), "batch()": (1, None), "loss()": (0, 0), "optimizer()": ([],), "train_step()": (0, 0, 0)}
    for name, values in arguments.items():
        call = getattr(source, name.removesuffix("()"))
        if name != function:
            call(*values)
            continue
        with pytest.raises(EstimateError) as caught:
            call(*values)
        assert caught.value.exit_code == ExitCode.UNKNOWN
        assert caught.value.what == f"{function} raised ZeroDivisionError: division by zero"
        assert caught.value.where == f"model.py:{4 + 2 * list(texts).index(name)}"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_file_that_trains_while_it_is_imported_is_stopped_at_its_first_step(load):
    loop = (
        "net = nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "while True:\n"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    with pytest.raises(EstimateError, match="trains while it is imported") as raised:
        load(f"exec({loop!r})\n")
    assert raised.value.where == "model.py:3"
    assert "--as script" in raised.value.hint
    with pytest.raises(EstimateError) as raised:
        load("import helper\n" if Path("helper.py").write_text(HEAD + loop) else "")
    assert raised.value.where == "helper.py:7"
    # Nothing is stopped afterwards.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
