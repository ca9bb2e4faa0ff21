"""Who may import whom: the pipeline points forwards, and the light commands know no heavy library."""

import ast
import os
import pickle
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.light import FORBID, HEAVY, light

ROOT = Path(__file__).parents[1]
MAY_IMPORT_TORCH = ("seam", "tracing", "validate", "runtime")
"""Packages that may import torch when they are imported themselves; everything else does so inside functions."""


def test_light_commands_import_nothing_heavy() -> None:
    commands = (
        "--help", "--version", "estimate --help", "gpus", "gpus h100-80g", "gpus --json", "presets", "explain",
        "explain MP001", "snapshot --help", "validate --help", "simulate --help", "gate --help", "diff --help",
        "report --help", "schema", "schema estimate", "schema gate",
    )  # fmt: skip
    for command, done in zip(commands, light(*map(str.split, commands)), strict=True):
        assert done.returncode == 0, (command, done.stderr)


def test_a_snapshot_is_analysed_without_anything_heavy(tmp_path: Path) -> None:
    block = {"size": 2097152, "requested_size": 5, "state": "active_allocated"}
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 2097152,
        "stream": 0,
        "segment_type": "small",
        "blocks": [block],
    }
    events = [{"action": "alloc", "addr": 0, "size": 5, "stream": 0}]
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events]}))
    conf = "expandable_segments:True"
    (done,) = light(("snapshot", str(path), "--alloc-conf", conf, "-f", "text", "-f", f"json={tmp_path}/out"))
    assert done.returncode == 0, done.stderr
    assert conf in done.stdout


def test_wrong_usage_is_told_before_anything_heavy_is_imported() -> None:
    wrong = (("estimate", "no-such-file.py", "--gpu", "h100-80g"), ("estimate", "preset:gpt2", "--gpu", "no-such-gpu"))
    for words, done in zip(wrong, light(*wrong), strict=True):
        assert done.returncode == 2, words
        assert "imports" not in done.stderr


def test_the_guard_itself_works() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORBID + "import torch"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "imports torch" in run.stderr


def module_level_imports(tree: ast.Module) -> Iterator[str]:
    """Top-level packages that a module imports when it is imported itself."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_what_is_kept_answers_without_torch(tmp_path: Path) -> None:
    target = str(ROOT / "examples" / "gpt_pretraining.py")
    # Children may import none of them either.
    (tmp_path / "sitecustomize.py").write_text(f"import os\nif os.environ.get('FORBIDDEN'):\n    exec({FORBID!r})\n")

    def estimate(gpu: str, forbidden: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "memplan", "estimate", target, "--gpu", gpu, "--cache-dir", str(tmp_path / "kept")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "FORBIDDEN": forbidden},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout or done.stderr

    assert "imports torch" in estimate("h100-80g", "yes")
    assert estimate("h100-80g", "").startswith("✓")
    for gpu in ("h200", "h100-80g"):
        assert estimate(gpu, "yes").startswith("✓")


def test_only_some_rooms_import_torch_when_imported() -> None:
    package = ROOT / "memplan"
    for path in sorted(package.rglob("*.py")):
        heavy = HEAVY & set(module_level_imports(ast.parse(path.read_text())))
        name = path.relative_to(package)
        allowed = {"torch", "numpy"} if name.parts[0] in MAY_IMPORT_TORCH else set()
        assert heavy <= allowed, name


def modules_by_name(*folders: Path) -> dict[str, Path]:
    """Modules below folders, each named from its folder's parent."""
    files = ((folder, path) for folder in folders for path in folder.rglob("*.py"))
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for folder, path in files
    }


def imports_of(path: Path, known: Collection[str]) -> Iterator[str]:
    """Modules that a module imports: when it is imported itself, inside functions, or for its annotations alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if name in known)
            if node.module in known and any(name not in known for name in names):
                yield node.module


def test_no_module_needs_itself() -> None:
    """Not even by way of others, inside functions, or for annotations alone."""
    own = modules_by_name(ROOT / "memplan")
    # The package itself finds what people import by name, when they ask.
    graph = {name: {*imports_of(path, own)} - {name} for name, path in own.items() if name != "memplan"}
    TopologicalSorter(graph).prepare()
    scripts = {name.removeprefix("benchmarks."): path for name, path in modules_by_name(ROOT / "benchmarks").items()}
    TopologicalSorter({name: {*imports_of(path, scripts)} - {name} for name, path in scripts.items()}).prepare()


def test_the_pipeline_only_points_forwards() -> None:
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
