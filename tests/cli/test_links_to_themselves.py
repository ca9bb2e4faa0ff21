"""A link that leads to itself is a file that cannot be written, wherever it is named."""

from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.report.estimate import json as estimate_json
from tests.report.example_estimates import FITS

WORDS = (
    "report a.json -f json=loop", "gate -f json=loop", "gate --baseline loop", "audit loop", "audit a.py -f json=loop",
    "diff a.json loop",
)  # fmt: skip


@pytest.mark.parametrize("words", WORDS)
def test_a_link_that_leads_to_itself_is_a_wrong_name(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("a.py").write_text("x = 1\n")
    Path("a.json").write_text(estimate_json.render([FITS]))
    Path("memplan.toml").write_text('gpus = ["t4"]\n[[job]]\nname = "a"\ntarget = "a.py"\n')
    assert main(words.split()) in {2, 3}
    captured = capsys.readouterr()
    assert "internal error" not in captured.err
    assert captured.err.startswith("error: ")
