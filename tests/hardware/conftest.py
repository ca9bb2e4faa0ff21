from pathlib import Path

import platformdirs
import pytest


@pytest.fixture(autouse=True)
def user_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder, so that the profiles of whoever runs the tests play no part."""
    folder = tmp_path / "config"
    monkeypatch.setattr(platformdirs, "user_config_path", lambda *_, **__: folder)
    return folder


@pytest.fixture
def user_gpus(user_config: Path) -> Path:
    """The user's own profile folder, made."""
    folder = user_config / "gpus"
    folder.mkdir(parents=True)
    return folder
