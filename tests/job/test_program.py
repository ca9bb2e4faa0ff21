"""Words that name programs: what is one, what a launcher's words mean, what is complained about."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.job.parallel import ALONE
from memplan.job.program import parse_words, trains
from memplan.job.spec import FileTarget, PresetTarget, ScriptTarget

GUARDED = "def main():\n    loss.backward()\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(GUARDED)
    (tmp_path / "model.py").write_text("def model():\n    ...\n" + GUARDED)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        (GUARDED, True),
        ("for x in data:\n    optimizer.step()\n    print(x)\n", True),
        ("Trainer(model).fit(data)\n", True),
        ("class Net: ...\nif __name__ == '__main__':\n    print(Net())\n", False),
        ("def step(model):\n    loss.backward()\n", False),
        ("for x in data:\n    weights -= grad_and_value(loss)(weights, x)[0]\nprint(weights)\n", True),
        ("for x in data:\n    weights -= torch.func.grad(loss)(weights, x)\nprint(weights)\n", True),
        ("def model(): ...\n" + GUARDED, False),
        ("def model(width=4, *, depth=2): ...\n" + GUARDED, False),
        ("def model(x, weights): ...\n" + GUARDED, True),
        ("def model(*, x): ...\n" + GUARDED, True),
        ("not python at all", False),
    ],
)
def test_a_file_that_trains_when_it_runs_is_a_program(text: str, is_program: bool, folder: Path) -> None:
    (folder / "any.py").write_text(text)
    assert trains(folder / "any.py") is is_program


def test_targets_stay_what_they_are() -> None:
    assert parse_words(["model.py"]).target == FileTarget(path=Path("model.py"))
    assert parse_words(["preset:gpt2"]).target == PresetTarget(name="gpt2")
    assert parse_words(["train.py:net"]).target == FileTarget(path=Path("train.py"), factory="net")


def test_what_a_file_is_may_be_said(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(GUARDED)
    assert parse_words([str(file)]).target == ScriptTarget(path=file)
    assert parse_words([str(file)], kind="target").target == FileTarget(path=file)
    assert parse_words(["model.py"], kind="script").target == ScriptTarget(path=Path("model.py"))
    with pytest.raises(UsageError, match="takes no arguments"):
        parse_words([str(file), "--lr", "1"], kind="target")
    with pytest.raises(UsageError, match="--as script is for Python files"):
        parse_words(["preset:gpt2"], kind="script")


def test_arguments_make_a_program_of_any_file() -> None:
    asked = parse_words(["model.py", "--lr", "1"])
    assert asked.target == ScriptTarget(path=Path("model.py"), arguments=("--lr", "1"))
    assert asked.parallel == ALONE


@pytest.mark.parametrize(
    ("words", "ranks", "arguments"),
    [
        ("torchrun --nproc-per-node 8 train.py --lr 1", 8, ("--lr", "1")),
        ("torchrun --standalone --nproc_per_node=4 --nnodes=2 train.py", 8, ()),
        ("torchrun --nnodes 1:4 --nproc-per-node=2 train.py", 8, ()),
        ("accelerate launch --num_processes 2 --multi_gpu train.py x", 2, ("x",)),
        ("deepspeed --num_gpus=4 train.py --deepspeed ds.json", 4, ("--local_rank=0", "--deepspeed", "ds.json")),
        ("deepspeed --no_local_rank train.py", 1, ()),
        ("python -m deepspeed.launcher.runner train.py --lr 1", 1, ("--local_rank=0", "--lr", "1")),
        ("torchrun --nproc-per-node 8 train.py -- --lr 1", 8, ("--lr", "1")),
        ("python -u train.py --lr 1", 1, ("--lr", "1")),
        ("python -m torch.distributed.run --nproc_per_node 4 train.py", 4, ()),
        ("python -m torch.distributed.launch --nproc_per_node=4 --use_env train.py --lr 1", 4, ("--lr", "1")),
        ("python3 -m torch.distributed.launch --nproc_per_node 4 train.py --lr 1", 4, ("--local-rank=0", "--lr", "1")),
        ("python -m accelerate.commands.launch --num_processes 2 train.py", 2, ()),
    ],
)
def test_launchers_are_read(words: str, ranks: int, arguments: tuple[str, ...]) -> None:
    asked = parse_words(words.split())
    assert isinstance(asked.target, ScriptTarget)
    assert asked.target.path == Path("train.py")
    assert asked.target.arguments == arguments
    assert asked.parallel.ranks == ranks
    if ranks > 1:
        assert asked.target.environment["WORLD_SIZE"] == str(ranks)


def test_what_accelerate_tells_its_programs_is_found() -> None:
    alone = parse_words(
        ["accelerate", "launch", "--mixed_precision=bf16", "--cpu", "--dynamo_backend", "no", "train.py"]
    )
    assert isinstance(alone.target, ScriptTarget)
    assert alone.target.environment == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_DYNAMO_BACKEND": "NO",
        "ACCELERATE_USE_CPU": "True",
    }
    several = parse_words(
        ["accelerate", "launch", "--num_processes", "2", "--mixed_precision", "fp16", "train.py"]
    ).target
    assert isinstance(several, ScriptTarget)
    assert several.environment.items() >= {"WORLD_SIZE": "2", "ACCELERATE_MIXED_PRECISION": "fp16"}.items()


def test_modules_run_as_programs() -> None:
    target = parse_words(["python", "-m", "package.train", "--lr", "1"]).target
    assert target == ScriptTarget(path=None, module="package.train", arguments=("--lr", "1"))


def test_commands_of_installed_packages_are_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, head in (("tunes", "#!/usr/bin/python3 -u"), ("shells", "#!/bin/sh")):
        (tmp_path / name).write_text(f"{head}\n")
        (tmp_path / name).chmod(0o755)
    target = parse_words(["tunes", "sft", "--lr", "1"]).target
    assert target == ScriptTarget(path=tmp_path / "tunes", arguments=("sft", "--lr", "1"))
    with pytest.raises(UsageError, match="'shells' is not a target"):
        parse_words(["shells", "sft"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["preset:gpt2", "--lr"], "takes no arguments"),
        (["model.py:model", "--lr"], "takes no arguments"),
        (["torchrun", "--nproc-per-node", "gpu", "train.py"], "no number of ranks"),
        (["torchrun"], "name no program"),
        (["accelerate", "launch", "--use_fsdp", "true", "train.py"], "what it says of the ranks is not read"),
        (["accelerate", "launch", "--config_file", "a.yaml", "train.py"], "what it says of the ranks is not read"),
        (["python", "-m"], "name no program"),
        (["torchrun", "missing.py"], "no file 'missing.py'"),
    ],
)
def test_what_cannot_be_run_is_said(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_words(words)
