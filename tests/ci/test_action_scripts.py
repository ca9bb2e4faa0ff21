"""The action's scripts run for real, between stand-ins for GitHub's runner, for ``gh`` and for memplan."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "memplan"
GH = """#!{python}
# A stand-in for `gh api`: comments in a file, two on a page; jq is the real one.
import json, os, re, subprocess, sys
from pathlib import Path

words, store = sys.argv[1:], Path(os.environ["COMMENTS"])
assert words.pop(0) == "api"
if os.environ.get("REFUSED") in words:
    sys.exit("HTTP 403: Resource not accessible by integration")
flags = {{"--paginate", "--silent"}}
method = words[words.index("--method") + 1] if "--method" in words else "GET"
[path] = [word for word in words if word.startswith("repos/")]
comments = json.loads(store.read_text())
if method == "GET":
    assert path == "repos/me/mine/issues/7/comments?per_page=100" and "--paginate" in words
    program = words[words.index("--jq") + 1]
    for page in range(0, len(comments), 2):
        text = json.dumps(comments[page : page + 2])
        subprocess.run(["jq", "-r", program], input=text, text=True, check=True)
    sys.exit()
field = words[words.index("-F") + 1]
name, _, file = field.partition("=@")
assert name == "body"
body = Path(file).read_text()
if method == "POST":
    assert path == "repos/me/mine/issues/7/comments"
    comments.append({{"id": 1000 + len(comments), "body": body}})
else:
    assert method == "PATCH"
    number = int(re.fullmatch("repos/me/mine/issues/comments/([0-9]+)", path)[1])
    [comment] = [each for each in comments if each["id"] == number]
    comment["body"] = body
store.write_text(json.dumps(comments))
"""
MEMPLAN = """#!{python}
# A stand-in for memplan: writes what it is asked for, and ends as it is told.
import os, sys
from pathlib import Path

Path(os.environ["TOLD"]).write_text("\\n".join(sys.argv[1:]))
print("the text report")
if os.environ["CODE"] == "2":
    print("error: memplan.toml cannot be read", file=sys.stderr)
else:
    for word in sys.argv:
        name, equals, file = word.partition("=")
        if equals:
            Path(file).write_text("::error file=a.py,line=3::it is over" if name == "github" else "a report in " + name)
sys.exit(int(os.environ["CODE"]))
"""


class Runner:
    """What GitHub's runner gives to a step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in ("output", "summary", "comments"):
            (folder / name).write_text("[]" if name == "comments" else "")

    def put(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(script.format(python=sys.executable))
        path.chmod(0o755)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "POSIX",
            "RUNNER_TEMP": str(self.folder), "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"), "GITHUB_REPOSITORY": "me/mine",
            "GITHUB_ACTION_PATH": str(ACTION), "COMMENTS": str(self.folder / "comments"),
            "TOLD": str(self.folder / "told"), **variables,
        }  # fmt: skip
        words = [str(ACTION / script)]
        return subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    @property
    def outputs(self) -> dict[str, str]:
        lines = (self.folder / "output").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def comments(self) -> list[dict]:
        return json.loads((self.folder / "comments").read_text())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    return Runner(tmp_path)


@pytest.mark.parametrize("code", ["0", "1", "3"])
def test_a_verdict_is_an_output_and_every_report_a_file(runner: Runner, code: str) -> None:
    runner.put("memplan", MEMPLAN)
    done = runner.run("gate.sh", CODE=code, PROJECT="", CACHE_DIR="")
    assert done.returncode == 0, done.stderr
    assert runner.outputs["exit-code"] == code
    for name in ("json", "sarif", "html", "comment"):
        assert Path(runner.outputs[name]).read_text() == f"a report in {name}"
    assert (runner.folder / "summary").read_text() == "a report in markdown"
    assert done.stdout.splitlines() == ["the text report", "::error file=a.py,line=3::it is over"]
    assert sorted(path.suffix for path in Path(runner.outputs["reports"]).iterdir()) == [
        ".html", ".json", ".md", ".md", ".sarif", ".xml",
    ]  # fmt: skip


def test_configuration_that_is_wrong_is_told_and_leaves_no_reports(runner: Runner) -> None:
    runner.put("memplan", MEMPLAN)
    done = runner.run("gate.sh", CODE="2", PROJECT="", CACHE_DIR="")
    assert done.returncode == 0
    assert "cannot be read" in done.stderr
    assert set(runner.outputs) == {"exit-code", "comment"}
    assert runner.outputs["exit-code"] == "2"
    told = (runner.folder / "summary").read_text()
    assert "could not run (exit code 2)" in told
    assert "error: memplan.toml cannot be read" in told


def test_project_and_cache_reach_the_command(runner: Runner) -> None:
    runner.put("memplan", MEMPLAN)
    runner.run("gate.sh", CODE="0", PROJECT="my project.toml", CACHE_DIR="/tmp/c")
    words = (runner.folder / "told").read_text().splitlines()
    assert words[-4:] == ["--project", "my project.toml", "--cache-dir", "/tmp/c"]
    runner.run("gate.sh", CODE="0", PROJECT="", CACHE_DIR="")
    assert (runner.folder / "told").read_text().splitlines()[-1] == "--no-cache"


@pytest.fixture
def commenting(runner: Runner) -> Runner:
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    runner.put("gh", GH)
    return runner


def comment(runner: Runner, text: str, gate: str = "./", **variables: str) -> subprocess.CompletedProcess[str]:
    body = runner.folder / "body.md"
    body.write_text(text)
    done = runner.run("comment.sh", BODY=str(body), PULL_REQUEST="7", GATE=gate, GH_TOKEN="secret", **variables)
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stdout + done.stderr
    return done


def test_a_comment_is_made_once_and_then_written_anew(commenting: Runner) -> None:
    others = [{"id": each, "body": f"looks good {each}"} for each in range(5)]
    (commenting.folder / "comments").write_text(json.dumps(others))
    comment(commenting, "it fits")
    assert commenting.comments[:5] == others
    assert commenting.comments[5]["body"].splitlines() == ["<!-- memplan gate: ./ -->", "it fits"]
    comment(commenting, "it is over")
    assert len(commenting.comments) == 6
    assert "it is over" in commenting.comments[5]["body"]
    assert commenting.comments[:5] == others


def test_a_quoted_marker_is_no_comment_of_ours(commenting: Runner) -> None:
    quoted = [{"id": 1, "body": "> <!-- memplan gate: ./ -->\nI do not agree"}]
    (commenting.folder / "comments").write_text(json.dumps(quoted))
    comment(commenting, "it fits")
    assert len(commenting.comments) == 2


def test_every_gate_of_a_repository_has_its_comment(commenting: Runner) -> None:
    for gate in ("./", "train/", "train/--> <b>x</b>.toml", "train/"):
        comment(commenting, f"of {gate}", gate=gate)
    first, second, third = (each["body"].splitlines()[0] for each in commenting.comments)
    assert len({first, second, third}) == 3
    assert third.count("-->") == 1
    assert third.endswith(" -->")


@pytest.mark.parametrize("size", [65_000, 65_001, 300_000])
def test_a_long_report_is_cut_to_what_github_takes(commenting: Runner, size: int) -> None:
    comment(commenting, "ü" * size)
    body = commenting.comments[0]["body"]
    assert len(body) < 65_536
    assert ("cut here" in body) == (size > 65_000)
    assert "�" not in body


@pytest.mark.parametrize("refused", ["--paginate", "POST", "PATCH"])
def test_a_token_that_may_not_write_is_told_and_fails_nothing(commenting: Runner, refused: str) -> None:
    if refused == "PATCH":
        comment(commenting, "first")
    done = comment(commenting, "it fits", REFUSED=refused)
    assert "::warning title=memplan::" in done.stdout
    assert "pull-requests: write" in done.stdout


PIP = """#!{python}
import os, sys
from pathlib import Path

with Path(os.environ["TOLD"]).open("a") as file:
    print(*sys.argv[1:], sep=" | ", file=file)
sys.exit(0 if sys.argv[1] == "-m" else int(os.environ["NO_TORCH"]))
"""


@pytest.mark.parametrize("no_torch", ["0", "1"])
def test_install_takes_the_cpu_build_where_there_is_no_torch(runner: Runner, no_torch: str) -> None:
    runner.put("python", PIP)
    done = runner.run(
        "install.sh", NO_TORCH=no_torch, TORCH="torch==2.13.0", TORCH_INDEX="https://cpu", SOURCE="",
        INSTALL="-r requirements.txt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    calls = [line for line in (runner.folder / "told").read_text().splitlines() if line.startswith("-m")]
    pip = "-m | pip | install | --quiet | "
    torch = [f"{pip}--index-url | https://cpu | torch==2.13.0"] if no_torch == "1" else []
    assert calls == [*torch, f"{pip}{ACTION}/../../..", f"{pip}-r | requirements.txt"]
    assert (ACTION / "../../.." / "pyproject.toml").resolve() == ROOT / "pyproject.toml"
