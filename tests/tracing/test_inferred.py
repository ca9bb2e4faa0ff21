"""Inputs and losses that a target does not name, worked out from its model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, InputSpec, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate

Run = Callable[..., Estimate]
HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n"
DIGITS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 12 * 12, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)
"""
VIEWED = DIGITS.replace("torch.flatten(x, 1)", "x.view(-1, 2304)")
LANGUAGE = """
class Model(nn.Module):
    def __init__(self, vocab=300, context=24):
        super().__init__()
        self.context = context
        self.words, self.places = nn.Embedding(vocab, 16), nn.Embedding(context, 16)
        self.head = nn.Linear(16, vocab)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        logits = self.head(self.words(idx) + self.places(torch.arange(t, device=idx.device)))
        if targets is None:
            return logits[:, [-1]], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
"""
TRANSLATOR = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(20, 16, 3, stride=2, padding=1)
        self.register_buffer("places", torch.zeros(50, 16))

    def forward(self, x):
        x = self.conv(x).transpose(1, 2)
        assert x.shape[1:] == self.places.shape, "wrong length"
        return x + self.places

class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.words = nn.Embedding(100, 16)
        self.places = nn.Parameter(torch.zeros(40, 16))
        self.mix = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, mel, tokens):
        heard = self.encoder(mel)
        said = self.words(tokens) + self.places[: tokens.shape[-1]]
        return self.mix(said, heard, heard)[0] @ self.words.weight.T
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def estimated(code: str, **options: object) -> Estimate:
        path = tmp_path / "net.py"
        path.write_text(HEAD + code)
        factory = options.pop("factory", None)
        spec = JobSpec(target=FileTarget(path=path, factory=factory), **options)  # type: ignore[arg-type]
        return estimate_here(spec, [load_profile("cpu")])[0]

    return estimated


@pytest.mark.parametrize("code", [DIGITS, VIEWED])
def test_pictures_of_the_size_that_the_flat_layer_wants(run: Run, code: str) -> None:
    estimate = run(code, batch_size=4)
    assert "--input x=float32[B,1,28,28]" in " ".join(estimate.assumptions)
    assert "cross-entropy against target=int64[B]" in " ".join(estimate.assumptions)
    assert estimate.provenance["batch"] == "worked-out:x=float32[B,1,28,28]"


def test_the_same_as_a_target_that_says_it(run: Run) -> None:
    said = "\ndef batch(n):\n    return torch.randn(n, 1, 28, 28), torch.zeros(n, dtype=torch.long)\n"
    said += "\ndef loss(output, batch):\n    return F.cross_entropy(output, batch[1])\n"
    assert run(DIGITS, batch_size=4).peak == run(DIGITS + said, batch_size=4).peak


def test_tokens_with_the_labels_that_a_language_model_takes(run: Run) -> None:
    estimate = run(LANGUAGE)
    assert estimate.provenance["batch"] == "worked-out:idx=int64[B,S]+targets=int64[B,S]"
    assert estimate.options["seq_len"] == "24"
    assert "the loss is the model's own of the scalar in the output" in " ".join(estimate.assumptions)


def test_a_typed_size_and_a_length(run: Run) -> None:
    estimate = run(LANGUAGE, factory="Model(vocab=50, context=8)", seq_len=6)
    assert estimate.options["seq_len"] == "6"
    assert estimate.parameters == 50 * 16 + 8 * 16 + 16 * 50 + 50


def test_several_inputs_each_by_its_first_layer(run: Run) -> None:
    estimate = run(TRANSLATOR, factory="Speech")
    assert estimate.provenance["batch"] == "worked-out:mel=float32[B,20,100]+tokens=int64[B,S]"
    assert "cross-entropy against target=int64[B,S]" in " ".join(estimate.assumptions)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("net = nn.LSTM(12, 8, batch_first=True)\n", "input=float32[B,S,12]"),
        ("net = nn.Sequential(nn.Conv3d(1, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten())\n",
         "input=float32[B,1,16,112,112]"),
        ("net = nn.Sequential(nn.ConvTranspose2d(100, 8, 4, 1, 0), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 3, 4))\n",
         "input=float32[B,100,1,1]"),
        ("net = nn.TransformerEncoderLayer(16, 2, batch_first=True)\n", "src=float32[B,S,16]"),
    ],
)  # fmt: skip
def test_layers_alone(run: Run, code: str, found: str) -> None:
    assert (
        run(code, seq_len=None if "S" not in found.partition("=")[2] else 5).provenance["batch"]
        == f"worked-out:{found}"
    )


def test_example_input_array(run: Run) -> None:
    code = "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(6, 2)\n"
    estimate = run(code + "        self.example_input_array = torch.zeros(1, 9, 6)\n")
    assert estimate.provenance["batch"] == "worked-out:input=float32[B,9,6]"


def test_inputs_given_win(run: Run) -> None:
    estimate = run(DIGITS, inputs=(InputSpec(name="x", dtype="float32", dims=("B", 1, 28, 28)),))
    assert not any("worked out" in sentence for sentence in estimate.assumptions)
    assert "cross-entropy" in " ".join(estimate.assumptions)


@pytest.mark.parametrize("name", ["sum", "mse", "cross-entropy"])
def test_a_loss_by_name(run: Run, name: str) -> None:
    estimate = run(DIGITS, loss=name)
    assert f"--loss: the loss is {name}" in " ".join(estimate.assumptions)


def test_what_cannot_be_found_is_refused_with_what_to_type(run: Run) -> None:
    code = "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(6, 2)\n"
    code += "    def forward(self, graph):\n        return super().forward(graph.nodes)\n"
    with pytest.raises(UsageError) as caught:
        run(code)
    assert "no batch()" in caught.value.what
    assert "--input graph=" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("method", "hint"),
    [("def training_step(self, batch, index): ...", "returns what training_step takes"),
     ("def generate(self): ...", "write one"),
     ("def forward(self, *anything): ...", "--input x=float32[B,512]")],
)  # fmt: skip
def test_a_model_whose_forward_names_no_input_is_told_what_would_help(run: Run, method: str, hint: str) -> None:
    code = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 2)\n"
    )
    with pytest.raises(UsageError) as caught:
        run(f"{code}    {method}\n")
    assert hint in (caught.value.hint or "")
    assert ("--input" in (caught.value.hint or "")) == ("forward(" in method)


def test_a_file_inside_a_package(tmp_path: Path) -> None:
    package = tmp_path / "inner_package"
    package.mkdir()
    (package / "__init__.py").write_text("import package_that_is_not_installed\n")
    (package / "sizes.py").write_text("WIDTH = 6\n")
    path = package / "net.py"
    path.write_text(HEAD + "from .sizes import WIDTH\n\ndef build() -> nn.Module:\n    return nn.Linear(WIDTH, 3)\n")
    [estimate] = estimate_here(JobSpec(target=FileTarget(path=path)), [load_profile("cpu")])
    assert estimate.parameters == 21
    assert "package_that_is_not_installed is not installed" in " ".join(estimate.not_modelled)


@pytest.mark.parametrize(
    ("use", "passes"),
    [
        ("", True),
        ("y = package_that_is_not_installed.do()\n", False),
        ("package_that_is_not_installed.do['x'] = 1\n", False),
    ],
)
def test_a_missing_package_may_be_imported_and_not_used(run: Run, use: str, passes: bool) -> None:
    code = f"import package_that_is_not_installed\n{use}net = nn.Linear(6, 2)\n"
    if passes:
        assert run(code).parameters == 14
        return
    with pytest.raises(Exception, match="of which do is used"):
        run(code)


def test_a_program_that_is_prepared_for_a_missing_package_is_told(run: Run) -> None:
    code = "try:\n    import package_that_is_not_installed\n    size = 3\nexcept ImportError:\n    size = 4\n"
    assert run(code + "net = nn.Linear(6, size)\n").parameters == 28
