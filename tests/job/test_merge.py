"""Several configuration files of one job: later ones win, but for what they leave open."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memplan.job.config_files.read import FileSettings, merge, with_given
from memplan.job.parallel import parse_parallel
from memplan.job.zero import Zero

names = st.sampled_from(["batch_size", "seq_len", "grad_accum", "precision"])


@st.composite
def settings_of_files(draw: st.DrawFn) -> FileSettings:
    values = draw(st.dictionaries(names, st.integers(1, 5)))
    lacks = {name: f"{name} is open" for name in values if draw(st.booleans())}
    provenance = {name: f"file:{name}" for name in values}
    return FileSettings(values=values, provenance=provenance, notes=tuple(draw(st.lists(names))), lacks=lacks)


@given(st.lists(settings_of_files(), max_size=5))
def test_a_field_has_the_last_value_that_a_file_is_sure_of(files: list[FileSettings]) -> None:
    merged = merge(files)
    for name in {name for file in files for name in file.values}:
        sure = [file for file in files if name in file.values and name not in file.lacks]
        open_first = [file for file in files if name in file.values]
        assert merged.values[name] == (sure or open_first)[-1 if sure else 0].values[name]
        assert (name in merged.lacks) == (not sure)
    assert merged.notes == tuple(note for file in files for note in file.notes)
    assert merged.values.keys() == merged.provenance.keys()


@given(settings_of_files(), st.dictionaries(names, st.integers(6, 9)))
def test_what_is_given_wins_and_need_not_be_said_by_files(file: FileSettings, given: dict[str, int]) -> None:
    values, missing = with_given(file, given)
    assert values == {**file.values, **given}
    assert set(missing) == {what for name, what in file.lacks.items() if name not in given}


def test_settings_of_deepspeed_follow_its_stage() -> None:
    file = FileSettings(values={"zero": Zero(stage=1)}, provenance={}, notes=(), lacks={})
    for parallel, expected in (("zero3=8", replace(Zero(), stage=3)), ("fsdp=8", None), ("none", None)):
        assert with_given(file, {"parallel": parse_parallel(parallel)})[0]["zero"] == expected
    assert with_given(file, {})[0]["zero"] == Zero(stage=1)
