"""Whatever is in a file, the audit comes back: with findings in its bounds, or with the reason why not."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memplan.audit.inspect import edited, inspect_file, inspect_source
from memplan.audit.records import Edit, FileAudit
from memplan.audit.run import audit
from memplan.audit.source import parse_notebook, parse_python
from memplan.errors import UsageError
from memplan.findings.rules import AUDIT
from tests.audit.cases import HEAD, NEGATIVE, POSITIVE

ALL = tuple(AUDIT)
CASES = [HEAD + body for table in (POSITIVE, NEGATIVE) for bodies in table.values() for body in bodies]
TOKENS = (
    "import torch as t\n", "from torch import nn\n", "for x in loader:\n    ", "while True:\n    ",
    "def eval(self, x):\n    ",
    "class A(nn.Module):\n    ", "loss", "model", "x", "=", "+=", ".", "(", ")", "[", "]", ",", ":", "\n", "\n    ",
    " @ ",
    "lambda y: ", ".backward()", ".append", "self", "with t.no_grad():\n    ", "'a'", "1", "softmax", "# noqa: MA001",
    "# memplan: ignore[MA002", "*", "**k", "yield ", "await ", "async ", "del ", "match x:\n    case _:\n        ",
    "é", "\x0c",
    "if x:\n    ", "try:\n    ", "except E:\n    ", "return ", "torch.cat", "torch.load", "pool.take", "\\\n", ";",
    "%time\n",
)  # fmt: skip
SOUP = st.lists(st.sampled_from(TOKENS), max_size=60).map("".join)
MANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(found: FileAudit, lines: int) -> None:
    for each in found.findings:
        place = each.place
        assert each.code in AUDIT
        assert each.message
        assert 1 <= place.line <= place.end_line
        assert place.column >= 1
        assert place.cell is not None or place.end_line <= lines
        assert "\n" not in each.message
    for broken in found.unread:
        assert broken.line >= 1
        assert broken.problem


def look(text: str, name: str = "train.py") -> FileAudit:
    source = parse_python(text.encode("utf-8", "surrogatepass"), name)
    return inspect_source(source, ALL)


@MANY
@given(SOUP)
def test_token_soup(text: str) -> None:
    found = look("import torch\n" + text)
    check(found, found.lines)


@MANY
@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    for parse in (parse_python, parse_notebook):
        found = inspect_source(parse(content, "x.py"), ALL)
        check(found, found.lines)


@MANY
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_mutated_training_code(text: str, chance: random.Random) -> None:
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines[at] = lines[at].lstrip()
            case _:
                words = lines[at].split(" ")
                words[chance.randrange(len(words))] = chance.choice(TOKENS).strip("\n")
                lines[at] = " ".join(words)
        lines = lines or [""]
    found = look("\n".join(lines))
    check(found, found.lines)


@MANY
@given(st.sampled_from(CASES), st.sampled_from(["", "\n", "    \n", "# é\n"]), st.integers(0, 5))
def test_findings_move_with_the_code_and_say_the_same(text: str, filler: str, times: int) -> None:
    before, after = look(text), look(filler * times + text)
    shift = times if filler else 0
    assert [(each.code, each.place.line + shift, each.place.column, each.message) for each in before.findings] == [
        (each.code, each.place.line, each.place.column, each.message) for each in after.findings
    ]


@MANY
@given(st.sampled_from(CASES))
def test_a_file_is_looked_through_the_same_whatever_names_its_imports_have(text: str) -> None:
    renamed = text.replace("import torch.nn.functional as F\n", "import torch.nn.functional as fun\n")
    renamed = renamed.replace("F.", "fun.").replace("AT_", "AT_")
    assert [(each.code, each.place.line) for each in look(text).findings] == [
        (each.code, each.place.line) for each in look(renamed).findings
    ]


def test_columns_count_characters_not_bytes() -> None:
    [found] = [
        each for each in look(HEAD + "é = 'ééé'; state = torch.load(model_path)\n").findings if each.code == "MA071"
    ]
    assert found.place.column == len("é = 'ééé'; state = ") + 1


def test_a_syntax_error_is_told_with_its_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n    pass\n")
    (tmp_path / "good.py").write_text("import torch\nstate = torch.load(model_path)\n")
    found = audit([tmp_path])
    assert [(each.file.endswith("bad.py"), each.line) for each in found.unread] == [(True, 2)]
    assert [each.code for each in found.findings] == ["MA071"]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"# coding: nonsense\n", b"x = '\x00'\n", b"(" * 500 + b")" * 500]
)
def test_what_is_no_python_is_told(content: bytes) -> None:
    found = inspect_source(parse_python(content, "x.py"), ALL)
    assert len(found.unread) == 1
    assert found.findings == ()


def test_code_that_is_nested_deeply() -> None:
    deep = "import torch\nx = " + "+".join(["torch.load(model)"] * 3000) + "\n"
    found = look(deep)
    check(found, found.lines)
    assert len(found.findings) == 3000 or found.unread


def notebook(*cells: str) -> bytes:
    listed = [{"cell_type": "code", "source": each.splitlines(keepends=True)} for each in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# title"]}, *listed]}).encode()


def test_cells_of_a_notebook_share_their_names() -> None:
    content = notebook(
        "import torch\nimport torch.nn.functional as F\n%matplotlib inline\n!pip install x\n",
        "this is no python\n",
        "for x in loader:\n    loss = F.mse_loss(model(x), x)\n    loss.backward()\n    total += loss\n",
        "%%bash\nrm -rf nothing\n",
        "%%time\nstate = torch.load(model_path)",
    )
    found = inspect_source(parse_notebook(content, "n.ipynb"), ALL)
    assert [(each.code, each.place.cell, each.place.line) for each in found.findings] == [
        ("MA001", 3, 4),
        ("MA071", 5, 2),
    ]
    assert [(each.cell, each.line) for each in found.unread] == [(2, 1)]


def test_folders_are_walked_without_what_is_not_ones_own(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.ipynb", "venv/x.py", "b/__pycache__/y.py", "legacy/old.py", "z_pb2.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(notebook("x = 1") if name.endswith("ipynb") else b"x = 1\n")
    found = audit([tmp_path, tmp_path / "a.py", tmp_path / "venv"], exclude=("legacy", "*_pb2.py"))
    assert [Path(file.file).relative_to(tmp_path).as_posix() for file in found.files] == [
        "a.py",
        "b/c.ipynb",
        "venv/x.py",
    ]


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file or folder"):
        audit([tmp_path / "nothing"])


def test_a_whole_disk_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memplan.audit.walk.MOST_FILES", 2)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    assert len(audit([tmp_path]).files) == 2
    (tmp_path / "c.py").write_text("")
    with pytest.raises(UsageError, match="more than 2 Python files"):
        audit([tmp_path])
    assert len(audit([tmp_path], exclude=["c.py"]).files) == 2


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    found = inspect_file(tmp_path / "gone.py", "gone.py", ALL)
    assert [each.problem for each in found.unread] == ["there is no such file"]


def test_several_processes_find_what_one_does(tmp_path: Path) -> None:
    for number in range(450):
        (tmp_path / f"m{number}.py").write_text(CASES[number % len(CASES)])
    one, two = audit([tmp_path], jobs=1), audit([tmp_path], jobs=2)
    assert one.findings == two.findings
    assert len(one.files) == 450


def test_own_examples_are_quiet_but_for_the_leak_that_one_of_them_shows() -> None:
    root = Path(__file__).parents[2]
    found = audit([root / "examples", root / "memplan" / "runtime", root / "tests" / "runtime" / "checkpoint"])
    others = [each for each in found.findings if not each.place.file.endswith("examples/find_leak.py")]
    assert [f"{each.place.file}:{each.place.line} {each.code}" for each in others] == []


def test_edits_are_made_from_the_end() -> None:
    edits = [
        Edit(line=1, column=0, end_line=1, end_column=1, text="aa"),
        Edit(line=1, column=2, end_line=1, end_column=3, text="bb"),
    ]
    assert edited(["x y"], edits) == "aa bb\n"
