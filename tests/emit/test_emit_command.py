"""``memplan emit`` as it is typed."""

import json
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import write_setup
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from tests.emit.setups import setup
from tests.support.light import light


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "setup.json"
    path.write_text(write_setup(setup(parallel=parse_parallel("zero2=8"), attention="flash")))
    return path


def test_one_file_goes_to_standard_output(plan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", str(plan), "--to", "deepspeed", "--no-trace"]) == 0
    done = capfd.readouterr()
    assert json.loads(done.out)["zero_optimization"]["stage"] == 2
    assert "note: attention flash: " in done.err
    assert "which was not traced" in " ".join(done.err.split())


def test_several_files_go_to_a_folder(plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", str(plan), "--to", "accelerate", "--no-trace"]) == 2
    assert "--out DIR" in capfd.readouterr().err
    assert main(["emit", str(plan), "--to", "accelerate", "--no-trace", "-o", str(tmp_path)]) == 0
    named = capfd.readouterr().out.splitlines()
    assert named == [str(tmp_path / "accelerate.yaml"), str(tmp_path / "ds_config.json")]
    assert all(Path(name).is_file() for name in named)


def test_a_plan_beside_the_setup_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_plan(CheckpointPlan(blocks=(BlockPlan(module="0", action=Action.CHECKPOINT),)), tmp_path / "plan.json")
    (tmp_path / "setup.json").write_text(write_setup(setup(checkpoint="plan.json")))
    assert main(["emit", str(tmp_path / "setup.json"), "--to", "torch", "--out", str(tmp_path)]) == 0
    assert "BlockPlan(module='0'" in (tmp_path / "checkpoint_plan.py").read_text()
    assert "note: batch_size 4" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "keras"], "--to must be one of deepspeed, accelerate"),
        (["--to", "fsdp2"], "fully_shard cannot say 'zero2=8'"),
        (["--to", "deepspeed", "--out", "/nowhere/at/all"], "there is no folder"),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    words: list[str], message: str, plan: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", str(plan), *words]) == 2
    assert message in capfd.readouterr().err


def test_what_cannot_be_traced_is_said(plan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = json.loads(plan.read_text()) | {"gpu": "unheard-of"}
    plan.write_text(json.dumps(content))
    assert main(["emit", str(plan), "--to", "deepspeed"]) == 0
    told = "without what this file does not carry another peak holds, which cannot be traced: "
    done = capfd.readouterr()
    assert f"note: {told}" in " ".join(done.err.split())
    assert told in " ".join(json.loads(done.out)["_memplan"])


def test_emitting_needs_nothing_heavy(plan: Path, tmp_path: Path) -> None:
    made = dict.fromkeys(("deepspeed", "accelerate", "hf", "axolotl"), plan)
    for to, parallel in (("fsdp2", "fsdp=8"), ("torchtitan", "fsdp=8"), ("torch", "ddp=8")):
        made[to] = tmp_path / f"{to}.json"
        made[to].write_text(write_setup(setup(parallel=parse_parallel(parallel))))
    more = ("--no-trace", "--out", str(tmp_path))
    ended = light(*(("emit", str(file), "--to", to, *more) for to, file in made.items()))
    for to, done in zip(made, ended, strict=True):
        assert done.returncode == 0, (to, done.stderr)
