"""Bad targets end to end: parsed, loaded and built in a child process, each with its message and exit code."""

import os
from pathlib import Path

import pytest

from memplan.errors import ExitCode, MemplanError
from memplan.job.inputs import parse_input
from memplan.job.isolate import run_isolated
from memplan.job.load import load_source
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target

GOOD = (
    "import torch\ndef model():\n    return torch.nn.Linear(3, 1)\n"
    "def batch(batch_size):\n    return torch.ones(batch_size, 3)\n"
)


def build(spec):
    """What an estimate does first."""
    source = load_source(spec)
    model = source.model()
    return sum(parameter.numel() for parameter in model.parameters()), tuple(source.batch(2, None).shape)


def attempt(target, *, timeout=30.0, inputs=()):
    spec = JobSpec(target=parse_target(target), inputs=tuple(parse_input(text) for text in inputs))
    return run_isolated(build, spec, timeout=timeout)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


LOOP = "import time\ndef model():\n    while True:\n        time.sleep(0.1)\ndef batch(n):\n    return None\n"

CASES = {
    "syntax error": ("def model(:\n", 3, "model.py is not valid Python", "model.py:1:11", None),
    "null bytes": ("x = '\0'\n", 3, "null bytes", None, None),
    "factory raises inside torch": (
        GOOD.replace("Linear(3, 1)", "Linear(3, 'x')"),
        3,
        "model() raised TypeError",
        "model.py:3",
        None,
    ),
    "import raises": ("x = 1\n1 / 0\n", 3, "model.py raised ZeroDivisionError: division by zero", "model.py:2", None),
    "package missing": (
        "import no_such_package\n",
        3,
        "ModuleNotFoundError",
        "model.py:1",
        "pip install no_such_package",
    ),
    "package with another name": ("import cv2\n", 3, "ModuleNotFoundError", "model.py:1", "pip install opencv-python"),
    "relative import": ("from .layers import x\n", 3, "No module named", "model.py:1", "beside the file"),
    "file missing": ("open('weights.bin')\n", 3, "FileNotFoundError", "model.py:1", "folder that memplan runs in"),
    "needs CUDA": (
        "raise RuntimeError('Found no NVIDIA driver on your system')\n",
        3,
        "NVIDIA",
        "model.py:1",
        "torch.cuda.is_available()",
    ),
    "sys.exit at import": ("import sys\nsys.exit(1)\n", 3, "ended the program: sys.exit(1)", "model.py:2", "__main__"),
    "os._exit at import": ("import os\nos._exit(1)\n", 3, "exit code 1", None, "os._exit"),
    "arguments at import": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()\n",
        3,
        "sys.exit(2)",
        "model.py:4",
        "__main__",
    ),
    "unprintable exception": (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n",
        3,
        "model.py raised model.E",
        "model.py:4",
        None,
    ),
    "ambiguous candidates": (
        "from torch import nn\nclass A(nn.Module):\n    pass\nclass B(nn.Module):\n    pass\n",
        2,
        "several candidates for the model: A, B",
        "model.py",
        "model.py:B",
    ),
}


@pytest.mark.parametrize(("text", "code", "what", "where", "hint"), CASES.values(), ids=list(CASES))
def test_bad_files(text, code, what, where, hint):
    Path("model.py").write_text(text)
    with pytest.raises(MemplanError) as caught:
        attempt("model.py")
    error = caught.value
    assert error.exit_code == ExitCode(code)
    assert what in error.what
    assert error.where == where
    assert (hint or "") in (error.hint or "")
    assert "Traceback" not in str(error)


def test_missing_file():
    Path("model.py").write_text(GOOD)
    with pytest.raises(MemplanError, match=r"no file 'modle\.py'") as caught:
        attempt("modle.py")
    assert caught.value.exit_code == 2


def test_missing_module():
    with pytest.raises(MemplanError, match="no module 'no_such_package'") as caught:
        attempt("no_such_package.nets:build")
    assert caught.value.exit_code == 2


def test_wrong_input():
    Path("model.py").write_text(GOOD)
    with pytest.raises(MemplanError, match="not a torch dtype") as caught:
        attempt("model.py", inputs=["x=float31[B,3]"])
    assert caught.value.exit_code == 2


def test_hanging_factory():
    Path("model.py").write_text(LOOP)
    with pytest.raises(MemplanError, match="within 2 seconds") as caught:
        attempt("model.py", timeout=2.0)
    assert caught.value.exit_code == 3


def test_hanging_import():
    Path("model.py").write_text("import time\n\nwhile True:\n    time.sleep(0.1)\n")
    with pytest.raises(MemplanError, match="within 2 seconds") as caught:
        attempt("model.py", timeout=2.0)
    assert caught.value.exit_code == 3
    assert caught.value.where == "model.py:4"


def test_a_model_that_prints_leaves_our_output_alone(capfd):
    text = GOOD.replace("    return torch.nn", "    print('HELLO', flush=True)\n    return torch.nn")
    Path("model.py").write_text("import os\nos.system('echo HELLO')\n" + text)
    assert attempt("model.py") == (4, (2, 3))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("HELLO") == 2


def test_a_file_in_the_current_folder_does_not_shadow_the_standard_library():
    for name in ("pickle.py", "threading.py", "signal.py"):
        Path(name).write_text("raise RuntimeError('shadowed')\n")
    Path("sub").mkdir()
    Path("sub/model.py").write_text("1 / 0\n")
    with pytest.raises(MemplanError, match="ZeroDivisionError") as caught:
        attempt("sub/model.py")
    assert caught.value.where == str(Path("sub/model.py:1"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file():
    Path("model.py").write_text(GOOD)
    Path("model.py").chmod(0)
    with pytest.raises(MemplanError, match="cannot be read") as caught:
        attempt("model.py")
    assert caught.value.exit_code == 2
