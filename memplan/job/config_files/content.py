"""JSON or YAML, read into plain data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan.errors import UsageError


def load(path: Path) -> Mapping[str, Any]:
    """What a configuration file holds.

    Raises:
        UsageError: It cannot be read, or is no mapping of keys to values.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        try:
            content = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            what = str(error).replace("\n", " ")
            raise UsageError(f"{path} is neither JSON nor YAML: {what}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path} holds no keys and values")
    return content
