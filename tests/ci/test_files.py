"""Files that CI systems read: each against its published schema, and all of them against the command line they call."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from memplan.cli.app import typer_app
from memplan.cli.gate import FORMATS

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "memplan"
EXAMPLE = ROOT / "examples" / "ci_gate"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
SCRIPTS = sorted(ACTION.glob("*.sh"))


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-actions", ACTION / "action.yml"),
        ("vendor.github-workflows", EXAMPLE / ".github" / "workflows" / "memplan.yml"),
        ("vendor.gitlab-ci", EXAMPLE / ".gitlab-ci.yml"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_files_follow_their_schemas(schema: str, path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    words += ["--data-transform", "gitlab-ci"] if schema == "vendor.gitlab-ci" else []
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_have_no_known_mistakes(path: Path) -> None:
    shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=Path(sys.executable).parent)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    words = [shellcheck, "--severity", "style", "--exclude", "SC2153", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_scripts_can_be_run() -> None:
    assert [path.name for path in SCRIPTS] == ["comment.sh", "gate.sh", "install.sh"]
    assert all(os.access(path, os.X_OK) for path in SCRIPTS)
    used = re.findall(r"\$GITHUB_ACTION_PATH/([\w.]+)", (ACTION / "action.yml").read_text())
    assert sorted(used) == [path.name for path in SCRIPTS]


def test_every_input_is_used_and_every_output_is_written() -> None:
    text = (ACTION / "action.yml").read_text()
    action = loaded(ACTION / "action.yml")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    written = set(re.findall(r'echo "([\w-]+)=', (ACTION / "gate.sh").read_text()))
    assert set(action["outputs"]) | {"comment"} == written
    assert set(re.findall(r"steps\.gate\.outputs\.([\w-]+)", text)) == written


def test_nothing_that_users_write_is_put_into_a_script() -> None:
    # ${{ … }} inside of run is text that becomes code: inputs reach scripts as variables of the environment alone.
    steps = loaded(ACTION / "action.yml")["runs"]["steps"]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []


def test_variables_that_scripts_read_are_set_by_the_action() -> None:
    steps = loaded(ACTION / "action.yml")["runs"]["steps"]
    for step in steps:
        names = re.findall(r"\$GITHUB_ACTION_PATH/([\w.]+)", step.get("run", ""))
        for name in names:
            text = (ACTION / name).read_text()
            own = set(re.findall(r"^\s*([A-Z_]+)=", text, re.MULTILINE)) | {"LC_ALL"}
            read = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", text))
            from_runner = {each for each in read if each.startswith(("GITHUB_", "RUNNER_"))}
            missing = read - own - from_runner - set(step["env"])
            assert missing == set(), f"{name} reads what nobody sets"


def options_of(command: str) -> set[str]:
    found = get_command(typer_app()).commands[command]
    return {option for parameter in found.params for option in parameter.opts}


@pytest.mark.parametrize(
    "path", [ACTION / "gate.sh", EXAMPLE / ".gitlab-ci.yml", HOOKS, EXAMPLE / "README.md"], ids=lambda path: path.name
)
def test_options_and_formats_that_are_used_exist(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"\s-f \"?(\w+)", text)) <= set(FORMATS)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"(?m)^.*(pip|pre-commit|pytest|git) .*$", "", text)))
    assert used <= options_of("gate")


def test_the_hook_is_one_that_pre_commit_takes() -> None:
    [hook] = loaded(HOOKS)
    assert (hook["id"], hook["language"]) == ("memplan-gate", "python")
    assert hook["pass_filenames"] is False
    assert hook["require_serial"] is True
    [used] = loaded(EXAMPLE / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert {key: used[key] for key in ("id", "entry", "pass_filenames")} == {
        key: hook[key] for key in ("id", "entry", "pass_filenames")
    }
    manifest = pytest.importorskip("pre_commit.clientlib")
    assert manifest.load_manifest(str(HOOKS))


def test_annotations_of_the_example_have_somewhere_to_go() -> None:
    workflow = loaded(EXAMPLE / ".github" / "workflows" / "memplan.yml")
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write", "security-events": "write"}
    [used] = [step for step in workflow["jobs"]["gate"]["steps"] if "memplan" in step.get("uses", "")]
    assert set(used.get("with", {})) <= set(loaded(ACTION / "action.yml")["inputs"])
    read = re.findall(r"steps\.memplan\.outputs\.([\w-]+)", json.dumps(workflow))
    assert set(read) <= set(loaded(ACTION / "action.yml")["outputs"])


def test_the_baseline_names_no_path_of_the_machine_that_made_it() -> None:
    jobs = json.loads((EXAMPLE / "memplan-baseline.json").read_text())["jobs"]
    sources = [owner["source"] for gpus in jobs.values() for each in gpus.values() for owner in each["owners"]]
    assert any(sources)
    assert not [source for source in sources if source.startswith("/")]


def test_no_file_has_a_placeholder_for_an_owner() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*"), *ROOT.glob(".github/**/*")]
    texts = {path: path.read_text(errors="ignore") for path in files if path.is_file() and "cache" not in str(path)}
    assert [path for path, text in texts.items() if re.search(r"\bOWNER\b", text)] == []
