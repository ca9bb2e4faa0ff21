"""The default of a file's own ``batch``, as Python itself sees it."""

import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.job.own_batch import with_own_batch
from memplan.job.spec import FileTarget, JobSpec, PresetTarget

NOBODY = {"batch_size": "default"}
PARAMETERS = st.sampled_from(
    ["", "n", "n=4", "n: int = 8", "n=4, seq_len=16", "n, seq_len=16", "n=4, /, seq_len=None", "*, n=4", "n=True",
     "n=2.0", "n=0", "n=-1", "n=None", "n='8'", "*n", "n=4, *, device='cpu'"]
)  # fmt: skip


@given(parameters=st.lists(PARAMETERS, max_size=3), before=st.integers(0, 3))
def test_it_is_what_python_would_take(
    parameters: list[str], before: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    functions = "\n".join(f"def batch({each}):\n    pass" for each in parameters)
    path = tmp_path_factory.mktemp("own") / "model.py"
    path.write_text("# model\n" * before + f"class Data:\n    def batch(self, n=99):\n        pass\n{functions}\n")
    module: dict[str, object] = {}
    exec(path.read_text(), module)
    job = with_own_batch(JobSpec(target=FileTarget(path=path), provenance=NOBODY))
    function = module.get("batch")
    first = next(iter(inspect.signature(function).parameters.values()), None) if callable(function) else None
    taken = first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    if taken and first is not None and type(first.default) is int and first.default > 0:
        assert job.batch_size == first.default
        assert job.provenance["batch_size"] == f"model.py:{function.__code__.co_firstlineno}"  # type: ignore[union-attr]
    else:
        assert (job.batch_size, job.provenance) == (1, NOBODY)


def test_what_was_chosen_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("def batch(n=16):\n    pass\n")
    typed = JobSpec(target=FileTarget(path=path), batch_size=2, provenance={"batch_size": "--batch-size"})
    assert with_own_batch(typed) == typed
    preset = JobSpec(target=PresetTarget(name="gpt2"), provenance=NOBODY)
    assert with_own_batch(preset) == preset


@pytest.mark.parametrize("text", ["def batch(n=16:\n", "\0", ""], ids=["syntax", "null", "empty"])
def test_a_file_that_says_nothing_is_left_to_who_runs_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(text)
    for each in (path, tmp_path / "absent.py"):
        job = JobSpec(target=FileTarget(path=each), provenance=NOBODY)
        assert with_own_batch(job) == job
