"""Which argument of a program is its batch, and how another value is typed."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.job.device_argument import for_gpu
from memplan.job.program_arguments import Varied, at, varied_program, with_argument
from memplan.job.spec import JobSpec, ScriptTarget

ARGPARSE = (
    "parser.add_argument('-b', '--batch-size', type=int, default=64)\nparser.add_argument('--block_size', default=8)\n"
)
CLICK = "@click.option('--train-batch-size', default=16)\ndef main(): ...\n"
FIELDS = "@dataclass\nclass Args:\n    lr: float = 1e-3\n    batch_size: int = 128\n"
TRAINER = "parser = HfArgumentParser((ModelArguments, TrainingArguments))\n"


def program(folder: Path, text: str, *arguments: str) -> ScriptTarget:
    (folder / "train.py").write_text(text)
    return ScriptTarget(path=folder / "train.py", arguments=arguments)


@pytest.mark.parametrize(
    ("text", "varied", "name", "value"),
    [
        (ARGPARSE, "batch_size", "--batch-size", 64),
        (ARGPARSE, "seq_len", "--block_size", 8),
        (CLICK, "batch_size", "--train-batch-size", 16),
        (FIELDS, "batch_size", "--batch_size", 128),
        ('parser.add_argument("--batch", type=int, default=16)\n', "batch_size", "--batch", 16),
        (TRAINER, "batch_size", "--per_device_train_batch_size", 8),
    ],
)
def test_an_argument_is_found_where_it_is_declared(
    text: str, varied: Varied, name: str, value: int, tmp_path: Path
) -> None:
    target, now = varied_program(program(tmp_path, text), varied, None)
    assert target.varied == {varied: name}
    assert now == value


def test_what_was_typed_is_the_value_and_is_replaced(tmp_path: Path) -> None:
    for typed in (("--lr", "1", "--batch-size", "32"), ("--batch-size=32", "--lr", "1")):
        target, now = varied_program(program(tmp_path, ARGPARSE, *typed), "batch_size", None)
        assert now == 32
        spec = at(JobSpec(target=target), "batch_size", 48)
        assert isinstance(spec.target, ScriptTarget)
        assert spec.target.arguments == ("--lr", "1", "--batch-size=48")
        assert spec.batch_size == 48


def test_short_options_take_a_word_of_their_own(tmp_path: Path) -> None:
    target = with_argument(program(tmp_path, "", "-b", "32", "x"), "-b", 8)
    assert target.arguments == ("x", "-b", "8")


def test_a_program_that_declares_none_says_what_to_type(tmp_path: Path) -> None:
    target = program(tmp_path, "exec(open('configurator.py').read())\n", "--batch_size=12")
    with pytest.raises(UsageError, match="no argument that is its batch size") as caught:
        varied_program(target, "batch_size", None)
    assert "--vary batch=--NAME" in (caught.value.hint or "")
    named, now = varied_program(target, "batch_size", "--batch_size")
    assert now == 12
    assert named.varied == {"batch_size": "--batch_size"}


def test_a_module_declares_nothing_that_is_read() -> None:
    with pytest.raises(UsageError):
        at(JobSpec(target=ScriptTarget(path=None, module="package.train")), "batch_size", 2)


def test_the_value_may_be_unknown(tmp_path: Path) -> None:
    target, now = varied_program(program(tmp_path, ""), "batch_size", "--size")
    assert (now, target.varied) == (None, {"batch_size": "--size"})


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("parser.add_argument('--accel', action='store_true')\n", (), "give it --accel, behind --"),
        ("parser.add_argument('-d', '--device', default='cpu')\n", (), "give it --device cuda, behind --"),
        ("parser.add_argument('--gpu', type=int)\n", (), "give it --gpu 0, behind --"),
        ("parser.add_argument('--use_cuda', action='store_true')\n", (), "give it --use_cuda, behind --"),
        ("parser.add_argument('--cuda', action='store_false')\n", (), ""),
        ("parser.add_argument('--accel', action='store_true')\n", ("--accel",), ""),
        ("", ("--no-cuda",), "leave --no-cuda out of its arguments"),
        ("", ("--device=cpu",), "leave --device=cpu out of its arguments"),
        ("", ("--lr", "1", "--device", "cpu"), "leave --device cpu out of its arguments"),
        ("parser.add_argument('--epochs', type=int)\n", (), ""),
    ],
)  # fmt: skip
def test_the_argument_for_the_gpu_is_named(text: str, arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert for_gpu(program(tmp_path, text, *arguments)) == said
