"""What the pages say is so: links lead somewhere, commands exist, the smallest target file works."""

import csv
import re
import shlex
from pathlib import Path
from statistics import median

import pytest
from typer.main import get_command

from memplan.cli.app import main, typer_app
from memplan.hardware.catalog import list_profiles, load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.records import Category
from memplan.measure.local import estimate_here
from tests.support import pages

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)[^)]*\)")
COMMAND = re.compile(rf"\bmemplan ({'|'.join(get_command(typer_app()).commands)})(?![\w-])([^`|\n…]*)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """What may stand behind ``#``: the headings as forges write them, and what the page names itself."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    heads = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_anchors_of_links_exist(page: Path) -> None:
    links = re.findall(r"\[[^\]]+\]\(([^)#\s:]*\.md)?#([^)\s]+)\)", page.read_text())
    assert [link for link in links if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page.is_dir():
            page /= "README.md"
        if page in reached or page.suffix != ".md" or not page.exists():  # A folder need not have a page.
            continue
        reached.add(page)
        queue += [(page.parent / link).resolve() for link in LINK.findall(page.read_text()) if "://" not in link]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_have_the_options_that_pages_give_them(page: Path) -> None:
    commands = get_command(typer_app()).commands
    for command, words in COMMAND.findall(page.read_text()):
        known = {option for parameter in commands[command].params for option in parameter.opts}
        own = re.split(r"(?:^|\s)--(?:\s|$)", words)[0]  # What follows is another program's.
        assert {word.partition("=")[0] for word in own.split() if word.startswith("-")} <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_gpus_that_pages_name_exist(page: Path) -> None:
    named = set(re.findall(r"--gpu ([a-z0-9-]+)", pages.GENERATED.sub("", page.read_text())))
    assert named <= {profile.name for profile in list_profiles()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_of_a_page_are_those_of_the_code(page: Path) -> None:
    assert pages.renewed(page.read_text()) == page.read_text(), f"make them anew: {pages.AGAIN}"


def test_the_pages_do_not_grow() -> None:
    assert sum(pages.words().values()) < 25_000


def test_every_table_of_the_code_stands_in_a_page() -> None:
    assert pages.named() <= {part["what"] for page in PAGES for part in pages.GENERATED.finditer(page.read_text())}


@pytest.mark.parametrize("command", [None, *get_command(typer_app()).commands])
def test_help_says_what_each_command_does_in_one_line_of_80_cells(
    command: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"] if command else ["--help"]) == 0
    text = capfd.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for name, found in get_command(typer_app()).commands.items():
        first = (found.help or "").splitlines()[0]
        assert command is not None or (f"{name} " in text and f" {first} " in text)


def test_vocabulary_has_every_category() -> None:
    text = (ROOT / "docs" / "vocabulary.md").read_text()
    assert [category for category in Category if f"| *{category}* |" not in text] == []


def errors(source: str, workload: str = "") -> list[float]:
    """Per cent, of the committed rows of a source, inference or ("training") all but inference."""
    with (ROOT / "benchmarks" / "results" / "accuracy.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"].startswith(source) and row["error_percent"]]
    chosen = [row for row in rows if not workload or (row["workload"] == "inference") == (workload == "inference")]
    return [abs(float(row["error_percent"])) for row in chosen]


def test_published_figures_in_the_readme_are_those_of_the_committed_table() -> None:
    text = (ROOT / "README.md").read_text()
    training, inference, kernels = errors("litgpt", "training"), errors("litgpt", "inference"), errors("Liger-Kernel")
    assert f"{len(training)} training and {len(inference)} inference runs" in text
    for name, found in (("training", training), ("inference", inference)):
        assert f"{name}: median {median(found):.2f} %, worst {max(found):.2f} %" in text
    [within] = map(float, re.findall(r"nine in ten within ([\d.]+) %", text))
    assert 0.9 <= sum(error <= within for error in kernels) / len(kernels) < 0.92
    assert f"{len(kernels)} single kernels | median {median(kernels):.2f} %" in text
    assert f"worst {max(kernels):.0f} %" in text


def test_smallest_target_file(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "targets.md").read_text(), re.DOTALL)
    (tmp_path / "smallest.py").write_text(code)
    spec = JobSpec(target=FileTarget(path=tmp_path / "smallest.py"), batch_size=8)
    [estimate] = estimate_here(spec, [load_profile("cpu")])
    assert estimate.parameters == 784 * 4096 + 4096 + 4096 * 10 + 10


@pytest.mark.slow
def test_inputs_given_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    [command] = re.findall(r"^memplan (estimate net.*)$", (ROOT / "docs" / "targets.md").read_text(), re.MULTILINE)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.head = nn.Linear(3 * 224 * 224, 10)\n"
        "    def forward(self, x, labels):\n"
        "        return nn.functional.cross_entropy(self.head(x.flatten(1)), labels)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    assert capfd.readouterr().out.splitlines()[0].startswith("✓ FITS     l4")
