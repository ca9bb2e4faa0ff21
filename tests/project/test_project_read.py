"""Project files: what they mean, what wins over them, and everything wrong with one told at once."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.cli import check
from memplan.cli.groups import JobOptions
from memplan.cli.job import job_spec
from memplan.cli.options import flag
from memplan.errors import MemplanError, UsageError
from memplan.job.options import OPTIONS
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, ScriptTarget
from memplan.project.keys import JOB as JOB_KEYS
from memplan.project.keys import TOP
from memplan.project.overrides import Overrides
from memplan.project.read import job_lines, load_project
from memplan.project.records import Amount, Policy, Project
from memplan.units import GIB
from tests.project.cases import BAD, JOB, KEYS, TYPED


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def model(): ...\n")
    for name in TOP:
        monkeypatch.delenv("MEMPLAN_" + name.upper().replace("-", "_"), raising=False)
    return tmp_path


def read(text: str, **overrides: Any) -> Project:
    Path("memplan.toml").write_text(text, encoding="utf-8")
    return load_project(None, Overrides(**overrides))


def job(keys: str = "", top: str = 'gpus = ["l4"]') -> str:
    return f'{top}\n[[job]]\nname = "a"\ntarget = "model.py"\n{keys}\n'


def complaints(text: str, **overrides: Any) -> str:
    with pytest.raises(UsageError) as raised:
        read(text, **overrides)
    return str(raised.value)


@pytest.mark.parametrize("shared", [False, True])
def test_both_files_take_the_same_keys(shared: bool) -> None:
    file = "pyproject.toml" if shared else "memplan.toml"
    table, header = ("[tool.memplan]", "[[tool.memplan.job]]") if shared else ("", "[[job]]")
    Path(file).write_text(f"{table}{KEYS}\n{header}{JOB}")
    project = load_project(None)
    [found] = project.jobs
    assert (project.file, project.baseline) == (Path(file), Path("memplan-baseline.json"))
    assert (found.name, found.gpus) == ("llama-8b-sft", ("h100-80g", "a100-40g"))
    assert (found.spec.target, found.spec.batch_size) == (PresetTarget(name="llama-3.1-8b"), 8)
    assert found.policy == Policy(
        max_peak=72 * GIB,
        min_headroom=Amount(share=0.05),
        max_increase=Amount(share=0.02),
        message="Ask #training-infra before raising this.",
    )
    assert found.line == Path(file).read_text().split("\n").index(header) + 1
    assert found.spec.provenance["batch_size"] == f"{file}:llama-8b-sft.batch-size"
    assert found.spec.provenance["seq_len"] == "default"


def test_every_option_of_a_job_is_a_key() -> None:
    options = {flag(name).removeprefix("--") for name in OPTIONS}
    own = {"name", "target", "script", "args", "config", "gpus", "timeout", "alloc-conf"}
    policy = {name.replace("_", "-") for name in Policy.__slots__}
    assert set(JOB_KEYS) == options | own | policy


def test_a_job_is_what_the_command_line_makes_of_the_same_words() -> None:
    Path("plan.json").write_text("{}")
    Path("ds.json").write_text(json.dumps({"gradient_clipping": 3.0, "zero_optimization": {"stage": 1}}))
    names = {"inputs": "input"}
    lines = [f"{names.get(name, name.replace('_', '-'))} = {json.dumps(value)}" for name, value in TYPED.items()]
    found = read(job("\n".join(lines))).jobs[0].spec
    problems = check.Problems()
    typed = {name: value for name, value in TYPED.items() if name != "config"}
    expected = job_spec("model.py", JobOptions(given=typed, config=[Path("ds.json")]), problems)
    problems.raise_if_any()
    assert replace(found, provenance={}) == replace(expected, provenance={})
    assert found.provenance.keys() == expected.provenance.keys()


LEVELS = ("winning", "environment", "job", "top")
VALUES: Mapping[str, tuple[Any, ...]] = {
    "max-peak": ("1GiB", "2GiB", "3GiB", "4GiB"),
    "min-headroom": ("1%", "2GiB", "3%", "4%"),
    "max-increase": ("1%", "2%", "3GiB", "4%"),
    "max-fragmentation": ("1%", "2%", "3%", "4%"),
    "fail-on": ("oom", "tight", "unknown", "tight"),
    "message": ("one", "two", "three", "four"),
    "timeout": ("1m", "2m", "30s", "4s"),
    "alloc-conf": tuple(f"max_split_size_mb:{size}" for size in (21, 22, 23, 24)),
    "gpus": (["l4"], ["t4"], ["h100-80g", "l4"], ["a100-40g"]),
}


@given(data=st.data(), key=st.sampled_from(sorted(VALUES)), present=st.tuples(*[st.booleans()] * 4))
def test_the_first_that_says_something_wins(data: st.DataObject, key: str, present: tuple[bool, ...]) -> None:
    values = data.draw(st.permutations(VALUES[key]))
    said = {level: value for level, value, there in zip(LEVELS, values, present, strict=True) if there}
    if key == "gpus":
        said.setdefault("top", ["rtx-4090"])
    lines = {level: f"{key} = {json.dumps(said[level])}" for level in ("job", "top") if level in said}
    top = ("" if key == "gpus" else 'gpus = ["l4"]\n') + lines.get("top", "")
    Path("memplan.toml").write_text(job(lines.get("job", ""), top))
    variable = said.get("environment", "")
    environment = {f"MEMPLAN_{key.upper().replace('-', '_')}": ",".join(variable) if key == "gpus" else variable}
    winning = {key.replace("-", "_"): said["winning"]} if "winning" in said else {}
    found = load_project(None, Overrides(**winning), environment=environment)
    expected = next((said[level] for level in LEVELS if level in said), None)
    alone = {key.replace("-", "_"): expected} if expected is not None else {}
    Path("memplan.toml").write_text(job())
    as_typed = load_project(None, Overrides(**alone), environment={}).jobs[0]
    assert replace(found.jobs[0], line=0) == replace(as_typed, line=0)


def test_informational_can_be_switched_off_again() -> None:
    text = job("informational = true")
    assert read(text).jobs[0].policy.informational
    assert not load_project(None, environment={"MEMPLAN_INFORMATIONAL": "no"}).jobs[0].policy.informational
    assert not read(text, informational=False).jobs[0].policy.informational
    with pytest.raises(UsageError, match="MEMPLAN_INFORMATIONAL: expected true or false, found 'maybe'"):
        load_project(None, environment={"MEMPLAN_INFORMATIONAL": "maybe"})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPLAN_GPUS", "t4, l4")
    assert read(job()).jobs[0].gpus == ("t4", "l4")


def test_folders_and_the_baseline_can_be_typed_or_set(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "own.toml").write_text('base = "l4"\n')
    text = job(top='gpus = ["own"]\nbaseline = "base.json"')
    assert read(text, profile_dirs=[Path("mine")]).profile_dirs == (Path("mine"),)
    found = load_project(None, environment={"MEMPLAN_PROFILE_DIRS": "mine", "MEMPLAN_BASELINE": "other.json"})
    assert (found.jobs[0].gpus, found.baseline) == (("own",), Path("other.json"))
    assert "memplan.toml: gpus: unknown GPU 'own'" in complaints(text)


def test_paths_begin_at_the_file_and_are_found_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plan.json", "adapter_config.json", "deep/hf/config.json", "profiles/l4-own.toml", "deep/er/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"peft_type": "LORA", "r": 3}')
    (folder / "profiles" / "l4-own.toml").write_text('base = "l4"\n')
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 5}')
    text = 'gpus = ["l4-own"]\nbaseline = "base.json"\nprofile-dirs = ["profiles"]\n'
    text += '[[job]]\nname = "a"\ntarget = "model.py:model"\ncheckpoint = "plan.json"\nlora = "adapter_config.json"\n'
    text += (
        'config = "ds.json"\n[[job]]\nname = "b"\ntarget = "hf:deep/hf"\n[[job]]\nname = "c"\ntarget = "hf:org/name"'
    )
    (folder / "memplan.toml").write_text(text)
    monkeypatch.chdir(folder / "deep" / "er")
    project = load_project(None)
    a, b, c = project.jobs
    assert a.spec.target == FileTarget(path=Path("../../model.py"), factory="model")
    assert a.spec.checkpoint == str(Path("../../plan.json"))
    assert a.spec.lora is not None
    assert (a.spec.lora.rank, a.spec.lora.path) == (3, Path("../../adapter_config.json"))
    assert a.spec.batch_size == 5
    assert (b.spec.target, c.spec.target) == (
        HubTarget(location=str(Path("../../deep/hf"))), HubTarget(location="org/name")
    )  # fmt: skip
    assert project.baseline == Path("../../base.json")
    assert project.profile_dirs == (Path("../../profiles"),)
    assert a.gpus == ("l4-own",)
    # What is typed begins at the working directory.
    assert load_project(None, Overrides(baseline=Path("here.json"))).baseline == Path("here.json")
    assert load_project(folder / "memplan.toml").jobs[0].spec.target == replace(a.spec.target, path=folder / "model.py")


def test_a_named_file_may_have_any_name(folder: Path) -> None:
    (folder / "JOBS.toml").write_text(job('gpus = ["t4"]'))
    assert load_project(Path("JOBS.toml")).jobs[0].gpus == ("t4",)


def test_names_of_gpus_are_those_of_profiles_each_once() -> None:
    assert read(job('gpus = ["NVIDIA A100-SXM4-40GB", "a100-40g", "L4"]')).jobs[0].gpus == ("a100-40g", "l4")


def test_only_the_jobs_that_are_wanted() -> None:
    text = job() + '[[job]]\nname = "b"\ntarget = "package.module:build"\n'
    [found] = read(text, jobs=["b"]).jobs
    assert found.spec.target == ModuleTarget(module="package.module", factory="build")
    assert "there is no job 'c'; there is a, b" in complaints(text, jobs=["c"])


def test_framework_files_of_a_job_say_what_the_job_leaves_open() -> None:
    Path("ds.json").write_text(
        json.dumps({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0})
    )
    found = read(job('config = ["ds.json"]\nparallel = "zero3=8"\nbatch-size = 4')).jobs[0]
    assert (found.spec.batch_size, found.spec.parallel.ranks, found.spec.clip_grad_norm) == (4, 8, 1.0)
    assert found.spec.zero is not None
    assert found.spec.provenance["clip_grad_norm"] == "ds.json:gradient_clipping"
    assert "memplan.toml: job 1 (a): ds.json says ZeRO stage 3, but not" in complaints(job('config = "ds.json"'))


COMPLAINTS = [
    "memplan.toml: gpuss: unknown key; did you mean gpus?",
    "memplan.toml: batch-size: belongs in a [[job]]",
    "memplan.toml: profile-dirs: there is no folder 'nowhere'",
    "memplan.toml: max-peak: '10 apples' is not a size",
    "memplan.toml: job 1 (llama-8b): batchsize: unknown key; did you mean batch-size?",
    "memplan.toml: job 1 (llama-8b): target: there is no file 'modle.py'; did you mean model.py?",
    "memplan.toml: job 1 (llama-8b): lora: does not know 'rank=3'",
    "memplan.toml: job 1 (llama-8b): input[0]: 'float33' is not a torch dtype (input x=float33[B], column 3)",
    "memplan.toml: job 1 (llama-8b): parallel: fsdp must be a whole number above 0, not 'x'",
    "memplan.toml: job 1 (llama-8b): gpus: missing; name them here, or at the top for all jobs",
    "memplan.toml: job 2 (llama-8b): gpus: unknown GPU 'gpu-of-nobody'",
    "memplan.toml: job 2 (llama-8b): max-peak: expected text such as '72GiB', found 72",
    "memplan.toml: job 2 (llama-8b): min-headroom: expected a share below 100%, found '150%'",
    "memplan.toml: job 2 (llama-8b): max-increase: '-1%' is not a size",
    "memplan.toml: job 2 (llama-8b): alloc-conf: 'max_splitsize_mb' is not an option",
    "memplan.toml: job 2 (llama-8b): prefetch is for the workers of a DataLoader: give data-workers too",
    "memplan.toml: job 2 (llama-8b): config: no.json cannot be read",
    "memplan.toml: job 2 (llama-8b): checkpoint must be none, full or a plan file; there is no file 'plan.json'",
    "memplan.toml: job 2 (llama-8b): fail-on: expected one of oom, tight, unknown, found 'ooms'",
    "memplan.toml: job 2 (llama-8b): timeout: expected text such as '10m' or a number above 0, found 0",
    "memplan.toml: job 2 (llama-8b): baseline: belongs at the top of the file, it is for all jobs",
    "memplan.toml: job 2 (llama-8b): batch-size must be between 1 and 2147483648, not 99999999999",
    "memplan.toml: job 2 (llama-8b): input x is given twice",
    "memplan.toml: job 3: name: expected text of one line",
    "memplan.toml: job 3: target: 'what is this' is not a target",
    "memplan.toml: job 3: gpus: expected a list of at least 1, found []",
    "memplan.toml: jobs 1 and 2 have one name, 'llama-8b'",
]


def test_everything_wrong_is_told_at_once_with_its_place() -> None:
    found = complaints(BAD).split("\n  - ")
    assert found[0] == "several things are wrong:"
    unsaid = [each for each in COMPLAINTS if not any(line.startswith(each) for line in found)]
    unexpected = [line for line in found[1:] if not any(line.startswith(each) for each in COMPLAINTS)]
    assert (unsaid, unexpected) == ([], [])


def test_what_wins_is_told_by_its_own_name() -> None:
    Path("memplan.toml").write_text(job())
    with pytest.raises(UsageError) as raised:
        load_project(None, Overrides(max_peak="x", gpus=["l5"]), environment={"MEMPLAN_FAIL_ON": "never"})
    for words in ("--max-peak: 'x' is not a size", "--gpu: unknown GPU 'l5'", "MEMPLAN_FAIL_ON: expected one of"):
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('gpus = ["l4"]\n[[job]\n', "memplan.toml cannot be read: Expected ']]' at the end of an array declaration "),
        ("a = 1\na = 2\n", "at line 2"),
        ('gpus = ["l4"]', "memplan.toml: no job; add a [[job]] with name and target"),
        ('gpus = ["l4"]\njob = []', "memplan.toml: no job"),
        ('[job]\nname = "a"', "memplan.toml: job: expected tables, each under a header [[job]]"),
        ("[[job]]", "memplan.toml: job 1: name: missing"),
        ("", "no job"),
    ],
)  # fmt: skip
def test_what_is_no_project_is_refused(text: str, message: str) -> None:
    assert message in complaints(text)


def test_no_project_anywhere(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.other]\n")
    with pytest.raises(UsageError, match=r"no memplan.toml and no pyproject.toml with \[tool.memplan\] in") as raised:
        load_project(None)
    assert "memplan init" in str(raised.value)
    with pytest.raises(UsageError, match=r"pyproject.toml has no \[tool.memplan\]"):
        load_project(Path("pyproject.toml"))
    with pytest.raises(UsageError, match=r"nothing.toml cannot be read: there is no such file"):
        load_project(Path("nothing.toml"))
    (folder / "pyproject.toml").write_text("[tool\n")
    with pytest.raises(UsageError, match=r"pyproject.toml cannot be read: .*line 1"):
        load_project(None)


def test_the_nearest_project_counts_and_two_in_one_folder_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "memplan.toml").write_text(job())
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    monkeypatch.chdir(inner)
    assert load_project(None).file == Path("../memplan.toml")
    (inner / "pyproject.toml").write_text('[tool.memplan]\ngpus = ["t4"]\n[[tool.memplan.job]]\nname = "i"\n'
                                          'target = "preset:gpt2"\n')  # fmt: skip
    assert load_project(None).file == Path("pyproject.toml")
    (inner / "memplan.toml").write_text(job())
    with pytest.raises(UsageError, match=r"both memplan.toml and \[tool.memplan\]"):
        load_project(None)


pieces = st.sampled_from(
    [
        "[[job]]", "  [[ job ]]  # [[job]]", "[[tool.memplan.job]]", "# [[job]]", "x{} = '[[job]]'", "[table{}]", "",
        'y{} = """\n[[job]]\n"""', "y{} = '''\n[[job]]\n \"\"\"\n'''", 'z{} = """a\\"""\n[[job]]"""', "[[jobs]]",
        "w{} = [\n1,\n]", 'v{} = "a \'\'\' b"', "[[ tool . memplan . job ]]", "u{} = 1 # '''",
        "t{} = \"\"\"x\n'''\n\"\"\"",
    ]
)  # fmt: skip


def _jobs(text: str) -> int:
    content = tomllib.loads(text)
    return len(content.get("job", [])) + len(content.get("tool", {}).get("memplan", {}).get("job", []))


@given(parts=st.lists(pieces, max_size=12))
def test_lines_are_where_the_parser_counts_one_job_more(parts: list[str]) -> None:
    lines = "\n".join(part.replace("{}", str(index)) for index, part in enumerate(parts)).split("\n")
    expected, known = [], 0
    for number in range(1, len(lines) + 1):
        try:
            count = _jobs("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # inside a value of several lines
        expected += [number] * (count - known)
        known = count
    assert job_lines("\n".join(lines), known) == tuple(expected)


def test_jobs_in_another_form_have_the_first_line() -> None:
    found = read('gpus = ["l4"]\njob = [{name = "a", target = "model.py"}, {name = "b", target = "model.py"}]')
    assert [each.line for each in found.jobs] == [1, 1]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('script = "train.py"\ntarget = "model.py"', "script: the job has a target already"),
        ('args = ["--lr", "1"]', "script: missing"),
        ('script = "missing.py"', "script: there is no file"),
        ('script = "train.py"\nbatch-size = 8', "batch-size: would change nothing"),
        ('script = "\\"train.py"', "script: No closing quotation"),
    ],
)
def test_what_is_wrong_of_a_program_is_told(
    lines: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("model.py").touch()
    Path("memplan.toml").write_text(f'gpus = ["t4"]\n[[job]]\nname = "job"\n{lines}\n')
    with pytest.raises(MemplanError, match=problem):
        load_project(None, Overrides())


def test_a_job_may_be_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    launched = 'script = "torchrun --nproc-per-node 4 train.py"\nargs = ["--lr", "1"]\n'
    Path("memplan.toml").write_text(f'gpus = ["t4"]\n[[job]]\nname = "job"\n{launched}')
    [job] = load_project(None, Overrides()).jobs
    assert isinstance(job.spec.target, ScriptTarget)
    assert job.spec.target.arguments == ("--lr", "1")
    assert job.spec.parallel.ranks == 4
