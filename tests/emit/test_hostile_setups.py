"""A law: whatever words a setup holds, emitted files are of the same shape, and the words stay words."""

import ast
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from memplan.cli.app import main
from memplan.emit.quote import in_docstring, one_line, python
from memplan.emit.records import FORMATS
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import write_setup
from memplan.runtime.checkpoint.plan_file import plan_text
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, SavedOp, Segment
from tests.emit.setups import setup

RAISES = '"""\nraise SystemExit("ran")\n"""'
SAMPLES = [
    RAISES, "'''\nraise SystemExit\n'''", '\\"""', "\\", '"', "\\N{BULLET}", "\\x", "# coding: utf-7", "{0} {x} %s",
    "a\nnum_processes: 99", "\r", "\x00", "\x1b[2J", "\x85", "\u2028", "\ufeff", "\u202e", "\ud800", "\U0001f4a5",
    "x" * 9999,
    "!!python/object/apply:os.system [x]", "*a", "&a a", ": ", "- ", "]", "}", "~", "1e999", "no", "%YAML 9.9",
]  # fmt: skip
HOSTILE = st.sampled_from(SAMPLES) | st.text(min_size=1, max_size=30)
FIELDS = ("gpu", "version", "model", "target", "key", "value", "module", "op")
PARALLEL = {"fsdp2": "fsdp=8", "torchtitan": "fsdp=8", "torch": "ddp=8", "deepspeed": "zero3=8"}


def write(folder: Path, to: str, words: Mapping[str, str], *, checkpoint: str, config: bool) -> Path:
    """A setup in which every text that has no fixed choice is one of these words."""
    lora = Lora(targets=(words["target"],), config={words["key"]: [words["value"]]} if config else None)
    made = setup(parallel=parse_parallel(PARALLEL.get(to, "fsdp=8")), checkpoint=checkpoint, lora=lora)
    content = json.loads(write_setup(made)) | {"gpu": words["gpu"], "memplan_version": words["version"]}
    content["job"]["target"] = {"hf": words["model"]}
    block = BlockPlan(module="0", action=Action.SELECTIVE, saved=(SavedOp(op="op", calls=(0,)),))
    plan = json.loads(plan_text(CheckpointPlan(blocks=(block,), segments=(Segment(modules=("1", "2")),))))
    plan["blocks"][0] |= {"module": words["module"], "saved": [{"op": words["op"], "calls": [0]}]}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "setup.json").write_text(json.dumps(content))
    return folder / "setup.json"


def shape(path: Path) -> Any:
    """What a file is made of, without its texts."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)
    return keys(json.loads(text) if path.suffix == ".json" else yaml.safe_load(text))


def keys(content: Any) -> Any:
    match content:
        case dict():
            return {name: keys(value) for name, value in content.items()}
        case list():
            return [keys(value) for value in content]
        case _:
            return type(content)


@pytest.mark.parametrize("to", FORMATS)
@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    words=st.fixed_dictionaries(dict.fromkeys(FIELDS, HOSTILE)),
    checkpoint=st.sampled_from(["none", "full", "plan.json"]),
    config=st.booleans(),
)
@example(words=dict.fromkeys(FIELDS, RAISES), checkpoint="plan.json", config=True)
@example(words=dict.fromkeys(FIELDS, "a\nnum_processes: 99"), checkpoint="none", config=False)
@example(words=dict.fromkeys(FIELDS, "\x00"), checkpoint="full", config=False)
@example(words=dict.fromkeys(FIELDS, "\x1b[2J\r\u2028"), checkpoint="full", config=True)
def test_a_hostile_setup_gives_files_of_the_usual_shape(
    to: str, words: dict[str, str], checkpoint: str, config: bool
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        tame, hostile = folder / "tame", folder / "hostile"
        codes, told = [], io.StringIO()
        for at, used in ((tame, {field: field for field in FIELDS}), (hostile, words)):
            at.mkdir()
            path = write(at, to, used, checkpoint=checkpoint, config=config)
            (at / "out").mkdir()
            with redirect_stderr(told), redirect_stdout(io.StringIO()):
                codes.append(main(["emit", str(path), "--to", to, "--no-trace", "-o", str(at / "out")]))
        assert codes[0] == 0
        assert "internal error" not in told.getvalue()
        assert not set(told.getvalue()) & set("\x1b\x00\r")
        files = sorted(each.name for each in (hostile / "out").iterdir())
        # Text that is no text (half of a surrogate pair), and module names that are patterns, are refused.
        assert (codes[1], files) in ((0, sorted(each.name for each in (tame / "out").iterdir())), (2, []))
        for each in files:
            if each != "adapter_config.json" or not config:  # It is the setup's own, keys included.
                assert shape(hostile / "out" / each) == shape(tame / "out" / each)


@given(HOSTILE)
def test_quoted_text_reads_back_and_ends_nothing(text: str) -> None:
    assert ast.literal_eval(f'"""{in_docstring(text)}"""') == text
    assert ast.literal_eval(python(text)) == text
    assert len(one_line(text).splitlines()) == 1
    assert one_line(text).isprintable()
    assert yaml.safe_load(f"# {one_line(text)}\nkey: 1") == {"key": 1}


@pytest.mark.parametrize("value", [float("inf"), {"a": float("nan")}, object()])
def test_what_no_literal_says_is_refused(value: object) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        python(value)


def test_notes_are_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "hf", dict.fromkeys(FIELDS, "x\nnote: all is well\x1b[2J"), checkpoint="none", config=False)
    assert main(["emit", str(path), "--to", "hf", "-o", str(tmp_path)]) == 0
    told = capfd.readouterr().err
    assert "\x1b" not in told
    assert "\nnote: all is well" not in told
