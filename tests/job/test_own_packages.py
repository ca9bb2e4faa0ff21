"""What memplan's own installation lacks is told as that, and never as the model's."""

import subprocess
import sys

import pytest

from memplan.errors import ExitCode
from memplan.job import usercode

MODEL = """
import torch


def model():
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(4)))


def batch(batch_size):
    return torch.randn(batch_size, 64)


def loss(output, batch):
    return output.sum()
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in which a package of memplan's begins with some code; its exit code and what it said."""

    def run(package: str, code: str, *arguments: str, model: str = MODEL) -> tuple[int, str]:
        installed = tmp_path / "site-packages" / package
        installed.mkdir(parents=True)
        (installed / "__init__.py").write_text(code)
        (tmp_path / "model.py").write_text(model)
        monkeypatch.setenv("PYTHONPATH", str(installed.parent))
        monkeypatch.chdir(tmp_path)
        command = [sys.executable, "-m", "memplan", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return ended.returncode, " ".join(ended.stderr.split())

    return run


def test_a_solver_that_lacks_a_package_is_none_of_the_models(run):
    arguments = ("checkpoint-plan", "model.py", "--batch-size", "4096", "--budget", "6MiB", "--gpu", "cpu")
    code, said = run("pulp", "import nowhere_to_be_found.inside\n", *arguments)
    assert code == ExitCode.USAGE, said
    assert "error: memplan's own installation is not whole: pulp needs the package 'nowhere_to_be_found'" in said
    assert "hint: pip install nowhere_to_be_found" in said
    assert "model" not in said


def test_what_the_command_itself_imports_is_told_alike(run):
    code, said = run("tomlkit", "import nowhere_to_be_found\n", "init", "--target", "model.py")
    assert (code, "tomlkit needs the package 'nowhere_to_be_found'" in said) == (ExitCode.USAGE, True), said
    assert "internal error" not in said


def test_what_is_imported_for_the_model_stays_the_models(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    # A frame of memplan's beneath one of the user's, here this test: the user's code has called it.
    importing = compile("import theirs", usercode.__file__, "exec")
    with pytest.raises(ModuleNotFoundError) as caught:
        exec(importing)
    assert "the model's code raised ModuleNotFoundError" in usercode.told(caught.value).what
