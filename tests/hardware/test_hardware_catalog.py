"""Finding profiles: names, folders, refinement by ``base``, and what goes wrong."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import ExitCode, UsageError
from memplan.hardware.catalog import list_profiles, load_profile, load_profiles, normalise, packaged_folder, user_folder

REPOSITORY = Path(__file__).parents[2]
T4 = (REPOSITORY / "hardware_profiles" / "t4.toml").read_text()


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100-80g", "h100-80g"),
        (" H100_80G ", "h100-80g"),
        ("H100", "h100-80g"),
        # As nvidia-smi and torch.cuda.get_device_name print them.
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA H100 PCIe", "h100-80g-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl-94g"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-se"),
        ("NVIDIA GH200 480GB", "gh200-96g"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100-32g"),
        ("AMD Instinct MI300X", "mi300x"),
        ("CPU", "cpu"),
    ],
)
def test_names_as_people_and_tools_write_them(typed: str, name: str) -> None:
    assert load_profile(typed).name == name


@pytest.mark.parametrize(
    ("typed", "some"),
    [("*24g", {"rtx-3090", "rtx-4090", "a10", "l4"}), ("A100*", {"a100-40g", "a100-80g"}), ("all", {"t4", "mi300x"})],
)
def test_patterns_and_all_stand_for_several(typed: str, some: set[str]) -> None:
    found = load_profiles([typed, "h100"])
    names = [profile.name for profile in found]
    assert some <= set(names)
    assert len(names) == len(set(names))
    assert "cpu" not in names
    assert "h100-80g" in names


def test_a_pattern_that_nothing_is_like() -> None:
    with pytest.raises(UsageError, match=r"no GPU is like '\*7g'"):
        load_profiles(["*7g"])


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.sampled_from(["h100-80g", "rtx-4090", "a10g"]), st.data())
def test_case_and_separators_do_not_matter(name: str, data: st.DataObject) -> None:
    typed = "".join(data.draw(st.sampled_from("-_ " if char == "-" else char + char.upper())) for char in name)
    assert normalise(typed) == name


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("h10-80g", "h100-80g"),
        ("a100", "a100-40g or a100-80g"),
        ("v100", "v100-16g or v100-32g"),
        ("rtx4090", "rtx-4090"),
        ("mi300", "mi300x"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(typed: str, suggested: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_profile(typed)
    assert caught.value.exit_code == ExitCode.USAGE
    assert typed in caught.value.what
    assert caught.value.hint is not None
    assert suggested in caught.value.hint
    assert "memplan gpus" in caught.value.hint


@pytest.mark.parametrize("typed", ["", "zzzz", "../h100-80g", "hardware_profiles/t4", "t4.toml", "*"])
def test_a_hopeless_name_still_says_where_to_look(typed: str) -> None:
    with pytest.raises(UsageError, match="unknown GPU") as caught:
        load_profile(typed)
    assert "`memplan gpus`" in str(caught.value)


def test_the_users_profile_wins_over_the_shipped_one(user_gpus: Path) -> None:
    (user_gpus / "t4.toml").write_text(T4.replace("NVIDIA T4", "Mine"))
    assert load_profile("t4").title == "Mine"
    assert [profile.title for profile in list_profiles() if profile.name == "t4"] == ["Mine"]


def test_profile_folders_win_in_the_order_given(user_gpus: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in (*folders, user_gpus):
        folder.mkdir(exist_ok=True)
        (folder / "t4.toml").write_text(T4.replace("NVIDIA T4", folder.name))
    assert load_profile("t4", profile_dirs=folders).title == "first"
    assert load_profile("t4", profile_dirs=folders[::-1]).title == "second"
    assert load_profile("t4").title == user_gpus.name


def test_a_new_profile_joins_the_list(user_gpus: Path) -> None:
    (user_gpus / "My Card.toml").write_text(T4.replace('["t4-16g"]', '["the card"]'))
    assert load_profile("my-card").total_bytes == load_profile("t4").total_bytes
    assert load_profile("The Card").name == "my-card"
    assert "my-card" in [profile.name for profile in list_profiles()]


def test_a_missing_profile_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder") as caught:
        load_profile("t4", profile_dirs=[tmp_path / "nowhere"])
    assert caught.value.where == "--profile-dir"


def test_a_base_is_refined_under_its_own_name(user_gpus: Path) -> None:
    shipped = load_profile("h100-80g")
    (user_gpus / "h100-80g.toml").write_text('base = "h100-80g"\nusable_bytes = "78GiB"\n')
    refined = load_profile("h100-80g")
    assert refined.usable_bytes == 78 * 2**30
    assert refined.total_bytes == shipped.total_bytes
    # The shipped source speaks of another figure.
    assert "usable_bytes" not in refined.sources
    assert refined.sources["total_bytes"] == shipped.sources["total_bytes"]
    assert load_profile("H100") == refined


def test_bases_chain(user_gpus: Path) -> None:
    (user_gpus / "ours.toml").write_text('base = "t4"\ncontext_bytes = "300MiB"\n')
    (user_gpus / "theirs.toml").write_text('base = "ours"\ntitle = "Theirs"\n[sources]\ntitle = "them"\n')
    theirs = load_profile("theirs")
    assert (theirs.title, theirs.context_bytes, theirs.sm_count) == ("Theirs", 300 * 2**20, 40)
    assert theirs.sources["title"] == "them"
    assert theirs.aliases == ()
    assert load_profile("t4-16g").name == "t4"


@pytest.mark.parametrize("base", ['"b"', '"a"', '"nosuchcard"', "3"])
def test_a_base_that_leads_nowhere_is_an_error(base: str, user_gpus: Path) -> None:
    (user_gpus / "a.toml").write_text(f"base = {base}\n")
    (user_gpus / "b.toml").write_text('base = "a"\n')
    with pytest.raises(UsageError) as caught:
        load_profile("a")
    assert ".toml" in str(caught.value.where)
    assert "base" in str(caught.value)


@pytest.mark.parametrize("content", [b"title = ", b"\xff\xfe", b'title = "a"\ntitle = "b"\n'])
def test_an_unreadable_file_is_named(content: bytes, user_gpus: Path) -> None:
    (user_gpus / "mine.toml").write_bytes(content)
    with pytest.raises(UsageError, match="cannot read GPU profile 'mine'") as caught:
        load_profile("mine")
    assert caught.value.where == str(user_gpus / "mine.toml")


def test_a_fault_behind_a_base_names_both_files(user_gpus: Path) -> None:
    (user_gpus / "broken.toml").write_text(T4.replace("sm_count = 40", "sm_count = -40"))
    (user_gpus / "mine.toml").write_text('base = "broken"\n')
    with pytest.raises(UsageError, match="sm_count") as caught:
        load_profile("mine")
    assert "mine.toml over " in str(caught.value.where)
    assert "broken.toml" in str(caught.value.where)


def test_a_broken_profile_does_not_stand_in_the_way_of_another(user_gpus: Path) -> None:
    (user_gpus / "broken.toml").write_text("total_bytes = 1\n")
    assert load_profile("t4").name == "t4"
    with pytest.raises(UsageError, match="broken"):
        list_profiles()


@pytest.mark.skipif(sys.platform != "linux", reason="the folder's place is the platform's")
def test_the_users_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()  # The fixture's stand-in for platformdirs.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_folder() == tmp_path / "memplan" / "gpus" == platformdirs.user_config_path("memplan") / "gpus"


def test_a_checkout_reads_the_top_level_folder() -> None:
    assert packaged_folder() == REPOSITORY / "hardware_profiles"


def test_an_installed_package_reads_its_own_folder(tmp_path: Path) -> None:
    # Laid out as the wheel is: pyproject.toml puts the profiles inside the package.
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    inside = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]["hardware_profiles"]
    shutil.copytree(REPOSITORY / "memplan", tmp_path / "memplan", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "hardware_profiles", tmp_path / inside)
    script = "from memplan.hardware import catalog; print(catalog.packaged_folder(), catalog.load_profile('t4').name)"
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [str(tmp_path / inside), "t4"]


def test_looking_up_a_profile_imports_nothing_heavy() -> None:
    script = (
        "import sys; from memplan.hardware.catalog import list_profiles; list_profiles();"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'rich') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.strip() == "[]"
