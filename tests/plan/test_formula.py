"""The textbook's figures: against figures that were published, and against their own definitions."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.cli.app import main
from memplan.plan.formula import FormulaSetup, ModelShape, rows, total
from memplan.units import GIB, MIB

GPT2 = ModelShape(parameters=124_439_808, layers=12, hidden=768, heads=12, kv_heads=12, vocabulary=50_257)
LLAMA_1B = ModelShape(parameters=1_235_814_400, layers=16, hidden=2048, heads=32, kv_heads=8)


def figures(shape: ModelShape, **setup: object) -> dict[str, int]:
    return {row.quantity: row.nbytes for row in rows(shape, FormulaSetup(**setup))}  # type: ignore[arg-type]


def test_figures_that_docs_textbook_publishes() -> None:
    found = figures(GPT2, batch_size=4, seq_len=1024, precision="fp32")
    assert round(found["weights"] / MIB, 1) == 474.7
    assert round(found["states of adamw"] / MIB, 1) == 949.4
    half = figures(GPT2, batch_size=4, seq_len=1024, precision="bf16", flash=False)
    assert (half["activations"] + half["attention scores"]) / MIB == 4104.0
    cache = figures(LLAMA_1B, batch_size=1, seq_len=544, precision="bf16", train=False)
    assert cache["cache of keys and values"] / MIB == 17.0


def test_the_zero_paper() -> None:
    """Rajbhandari et al. 2020, figure 1, of what is shared out: 7.5 billion parameters on 64 GPUs, 2 + 2 + 12 bytes."""
    shape = ModelShape(parameters=7_500_000_000, layers=1, hidden=64, heads=1, kv_heads=1)
    setups = {"batch_size": 1, "seq_len": 1, "precision": "fp32", "gpus": 64}
    model = [sum(list(figures(shape, zero=stage, **setups).values())[:3]) / 1e9 for stage in range(4)]
    # With 4 + 4 + 8 bytes: 16 P, 8 P + 8 P / N, 4 P + 12 P / N, 16 P / N.
    assert model == pytest.approx([120.0, 60.9375, 31.40625, 1.875])


@given(st.integers(1, 64), st.integers(1, 4096), st.sampled_from(["none", "selective", "full"]), st.booleans())
def test_less_is_never_more(batch: int, length: int, checkpoint: str, flash: bool) -> None:
    def sum_of(**changed: object) -> int:
        setup = {"batch_size": batch, "seq_len": length, "checkpoint": checkpoint, "flash": flash, **changed}
        return total(rows(GPT2, FormulaSetup(**setup)))  # type: ignore[arg-type]

    assert sum_of(flash=True) <= sum_of(flash=False)
    assert sum_of(batch_size=batch) < sum_of(batch_size=batch + 1)
    assert sum_of(checkpoint="full") <= sum_of(checkpoint="none")
    assert sum_of(zero=3, gpus=8) < sum_of(zero=2, gpus=8) < sum_of(zero=1, gpus=8) < sum_of(gpus=8)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--params", "7B", "--layers", "32", "--hidden", "4096", "--heads", "32", "--seq-len", "4096"]
    assert main(["formula", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["quantity"]: row["bytes"] for row in found["rows"]}["gradients"] == 28_000_000_000
    assert main(["formula", "--preset", "llama-3.2-1b", "--inference", "--seq-len", "544"]) == 0
    assert "17.00 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--params", "7e9"], "not whole without --layers, --hidden, --heads"),
        (["--preset", "gpt2", "--params", "many"], "'many' is no count"),
        (["--preset", "gpt2", "--zero", "4"], "--zero must be 0 to 3"),
        (["--preset", "gpt3"], "gpt3"),
        (["--preset", "gpt2", "--precision", "half"], "--precision must be one of"),
        (["--preset", "gpt2", "--gpus", "8", "--traced"], "--traced takes a --preset on one GPU"),
    ],
)
def test_wrong_words_exit_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formula", *words]) == 2
    assert said in capsys.readouterr().err


def test_torch_is_not_imported() -> None:
    command = "from memplan.cli.app import main; main(['formula', '--preset', 'gpt2'])"
    code = f"import sys; {command}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


@pytest.mark.slow
def test_beside_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formula", "--preset", "gpt2", "--seq-len", "64", "--precision", "fp32", "--traced", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["traced"]["parameter"] == 124_439_808 * 4
    assert found["traced"]["peak on h100-80g"] < 4 * GIB


def test_top_k_of_gradients_adds_to_memory_and_saves_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    whole, top = (
        figures(GPT2, batch_size=1, seq_len=1, gpus=8),
        figures(GPT2, batch_size=1, seq_len=1, gpus=8, top_gradients=0.01),
    )
    added = {name: size for name, size in top.items() if name not in whole}
    count = GPT2.parameters
    assert added["residual of gradients"] == whole["gradients"] == 4 * count
    # A value of 4 bytes and a position of 8, from each of 8 ranks.
    assert added["those of all ranks"] == pytest.approx(8 * 0.01 * 12 * count, abs=1)
    assert added["sent instead of the gradients"] == pytest.approx(0.03 * whole["gradients"], abs=1)
    for words in (["--zero", "2"], ["--inference"]):
        assert main(["formula", "--preset", "gpt2", "--gpus", "8", "--top-gradients", "0.01", *words]) == 2
    assert main(["formula", "--preset", "gpt2", "--top-gradients", "2"]) == 2
    assert "above 0" in capsys.readouterr().err
