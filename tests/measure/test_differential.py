"""The net of ``benchmarks/differential.py``: what it draws and writes is sound, and a short run of it is clean."""

import ast
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def module() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module


def test_one_seed_draws_the_same_programs_again(module: Callable[[str], ModuleType]) -> None:
    draw, write = module("differential.draw"), module("differential.write")
    first, second = ([write.source(draw.draw(3, number)) for number in range(20)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 20


def test_every_program_is_a_file_that_parses(module: Callable[[str], ModuleType]) -> None:
    draw, write = module("differential.draw"), module("differential.write")
    for number in range(100):
        names = {node.name for node in ast.parse(write.source(draw.draw(4, number))).body if hasattr(node, "name")}
        assert {"Net", "model", "batch", "loss", "optimizer"} <= names


def test_a_feature_that_is_asked_for_is_there(module: Callable[[str], ModuleType]) -> None:
    draw = module("differential.draw")
    assert all(feature in draw.draw(5, 0, feature).features for feature in draw.FEATURES)


def test_a_shrunk_program_keeps_only_what_makes_it_fail(module: Callable[[str], ModuleType]) -> None:
    draw, shrink = module("differential.draw"), module("differential.shrink")
    program = draw.draw(6, 0, "fft")

    def fails(smaller: object) -> bool:
        return "fft" in smaller.features  # type: ignore[attr-defined]

    smallest = shrink.shrunk(program, fails)
    assert [chosen.piece.feature for block in smallest.blocks for chosen in block.pieces] == ["fft"]
    assert smallest.loop.name == "loop"


def test_what_a_file_makes_while_it_is_imported_is_measured(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    draw, write, run = (module(f"differential.{name}") for name in ("draw", "write", "run"))
    program = draw.draw(0, 0)
    plain, beside = tmp_path / "plain.py", tmp_path / "beside.py"
    plain.write_text(write.source(program))
    beside.write_text(write.source(program) + "\nGENERATOR = torch.nn.Linear(512, 511)\n")
    measured, predicted = (
        [ask(path)["peak"] for path in (plain, beside)]
        for ask in (lambda path: run.real(program, path, 2), lambda path: run.predicted(program, path))
    )
    assert measured[1] - measured[0] == predicted[1] - predicted[0] == 513 * 511 * 4


@pytest.mark.slow
def test_a_short_run_has_no_silent_error(module: Callable[[str], ModuleType]) -> None:
    draw, judge, run = module("differential.draw"), module("differential.judge"), module("differential.run")
    usual = run.usual_words()
    judged = [judge.judge(draw.draw(0, number), usual) for number in range(20)]
    bad = [each for each in judged if each.verdict in {"silent", "refused", "crashed"}]
    assert not bad
    assert sum(each.verdict == "right" for each in judged) >= 15
