"""The examples of docs/python.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


EXAMPLES = tuple(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


def test_examples_run_one_after_the_other() -> None:
    _run(*[example for example in EXAMPLES if "_check(" not in example])


@pytest.mark.slow
def test_checks_are_made_of_the_libraries_at_hand() -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("transformers")
    (example,) = [example for example in EXAMPLES if "_check(" in example]
    _run("import memplan", example)


def _run(*examples: str) -> None:
    assert examples
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
