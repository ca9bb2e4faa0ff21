"""Source that Python cannot parse is one error, however it fails."""

from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.files.syntax import parse_source

DEEP = "x = " + "+".join(["1"] * 20_000)


@pytest.mark.parametrize("text", ["def", "\0", DEEP, b"\xff"])
def test_what_cannot_be_parsed_is_a_syntax_error(text: str | bytes) -> None:
    with pytest.raises(SyntaxError):
        parse_source(text)


@pytest.mark.slow
def test_init_of_deep_source_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(DEEP)
    main(["init", "model.py"])
    assert "internal error" not in capsys.readouterr().err
