"""Each file says which backend compiles, and of the default, Inductor, nothing."""

import pytest

from memplan.emit import code, training_arguments
from tests.emit.setups import setup


@pytest.mark.parametrize(
    ("choice", "lines"),
    [("eager", []), ("inductor", ["model.compile()"]), ("aot_eager", ['model.compile(backend="aot_eager")'])],
)
def test_code_names_the_backend(choice: str, lines: list[str]) -> None:
    assert code.compile_lines(setup(compile=choice).job) == lines


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("eager", {"torch_compile": False}),
        ("inductor", {"torch_compile": True}),
        ("aot_eager", {"torch_compile": True, "torch_compile_backend": "aot_eager"}),
    ],
)
def test_a_trainer_is_told_the_backend(choice: str, said: dict[str, object]) -> None:
    assert training_arguments.compiling(setup(compile=choice).job) == said
