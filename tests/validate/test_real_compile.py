"""Real runs under ``torch.compile``: compiled with ``inductor``, left alone with ``eager``, clear where it fails."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from memplan.errors import EstimateError
from memplan.job.spec import FileTarget, JobSpec
from memplan.validate import compose
from memplan.validate.compiled import COMPILING, LEFT_OUT, compiler_failure, compiling
from memplan.validate.compose import SCALAR_BYTES
from memplan.validate.device import facts_here
from memplan.validate.records import MeasuredRun
from memplan.validate.run import run_here

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile compiles C++ for the CPU")

MODEL = """
import torch
from torch import nn

def model():
    return {model}

def batch(batch_size):
    return torch.randn(batch_size, 64)

def loss(output, batch):
    return output.pow(2).mean()
"""
CHAIN = "nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))"


def job(folder: Path, model: str, *, compile: str) -> JobSpec:  # noqa: A002 (the option's name)
    path = folder / "target.py"
    path.write_text(MODEL.format(model=model))
    return JobSpec(target=FileTarget(path=path), batch_size=32, compile=compile)


@pytest.mark.slow
@needs_compiler
def test_a_compiled_run_is_what_was_predicted(tmp_path: Path) -> None:
    found = compose.validate(job(tmp_path, CHAIN, compile="inductor"), device="cpu", steps=2)
    measured = found.run.measured
    assert abs(found.predicted.requested - measured.peaks.requested) <= 2 * SCALAR_BYTES
    assert COMPILING in measured.notes
    # What compiling takes comes beside what was predicted, the stream of Inductor's code, and all of that comes.
    assert found.alignment.matched == found.alignment.predicted


def test_with_eager_a_target_that_compiles_runs_as_written(tmp_path: Path) -> None:
    def run(model: str) -> MeasuredRun:
        return run_here(
            job(tmp_path, model, compile="eager"), device="cpu", steps=2, traced_steps=2, seconds=9
        ).measured

    plain, wrapped = run(CHAIN), run(f"torch.compile({CHAIN}, fullgraph=True)")
    assert wrapped.stream.sizes == plain.stream.sizes
    assert (plain.notes, wrapped.notes) == ((), (LEFT_OUT,))


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("fresh_children")  # torch reads the compiler's name where it is imported.
def test_without_a_compiler_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    spec = job(tmp_path, CHAIN, compile="inductor")
    with pytest.raises(EstimateError, match=r"torch\.compile cannot compile this step: .*no-such-compiler") as caught:
        compose.run_for_real(spec, facts_here("cpu"), compose.Limits(steps=1, traced_steps=1))
    assert "install a C++ compiler" in str(caught.value.hint)
    capfd.readouterr()


def test_other_errors_are_no_failures_of_a_compiler() -> None:
    assert compiler_failure(ValueError("no C++ compiler here")) is None


class Said(Exception):  # noqa: N818 - a stand-in.
    """As torch's compilers raise it."""


def test_the_cause_within_an_error_is_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Said, "__module__", "torch._inductor.exc")
    outer = EstimateError("step 1 raised a long story")
    outer.__cause__ = Said("\nfirst line\nsecond line")
    failure = compiler_failure(outer)
    assert failure is not None
    assert "cannot compile this step: first line" in str(failure)
    assert "--compile eager" in str(failure.hint)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, dict[str, object]]]]:
    """Calls of a ``torch.compile`` that compiles nothing and marks what it returns."""
    calls: list[tuple[object, dict[str, object]]] = []

    def play(function: object, **options: object) -> object:
        calls.append((function, options))
        return lambda *args: ("compiled", args)

    monkeypatch.setattr(torch, "compile", play)
    return calls


def test_the_targets_own_options_reach_torch(asked: list[tuple[object, dict[str, object]]]) -> None:
    layer = nn.Linear(2, 2)
    with compiling("inductor") as meaning:
        compiled = torch.compile(layer, mode="max-autotune")
        assert compiled(torch.zeros(1, 2))[0] == "compiled"
        torch.compile(dynamic=True)(len)
        nn.ReLU().compile(fullgraph=True)
        # The target has asked, so the model as a whole is left alone.
        meaning.whole(nn.Linear(2, 2))
    assert [options for _, options in asked] == [{"mode": "max-autotune"}, {"dynamic": True}, {"fullgraph": True}]
    # As in torch: what is thrown away compiles nothing.
    assert torch.is_tensor(layer(torch.zeros(1, 2)))


def test_a_model_of_whose_target_nothing_asks_is_compiled_as_a_whole(
    asked: list[tuple[object, dict[str, object]]],
) -> None:
    model = nn.Linear(2, 2)
    before = list(model.state_dict())
    with compiling("inductor") as meaning:
        meaning.whole(model)
    assert len(asked) == 1
    assert model(torch.zeros(1, 2))[0] == "compiled"
    assert list(model.state_dict()) == before


def test_with_eager_nothing_is_compiled_and_torch_is_as_before(
    asked: list[tuple[object, dict[str, object]]],
) -> None:
    before = torch.compile, nn.Module.compile
    with compiling("eager") as meaning:
        assert meaning.notes() == ()
        assert torch.compile(len) is len
        assert torch.is_tensor(torch.compile(nn.Linear(2, 2))(torch.zeros(1, 2)))
        meaning.whole(nn.Linear(2, 2))
        assert meaning.notes() == (LEFT_OUT,)
    assert not asked
    assert (torch.compile, nn.Module.compile) == before
