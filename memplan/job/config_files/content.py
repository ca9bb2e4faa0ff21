"""JSON or YAML, read into plain data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import DEEPEST, MalformedError, check_plain, parse_json
from memplan.files.read import SETTINGS, UnreadableError, read_text

_MOST_NODES = 100_000
"""Keys, values and lists of a YAML file with its aliases written out: ten aliases of ten aliases, six times over, are a
million of them in a few lines. The largest configurations of the frameworks have a few hundred."""
_LONGEST_NUMBER = 40
"""Characters; ``1:00:00…`` is a number to YAML, and PyYAML needs the square of its length."""


def load(path: Path) -> Mapping[str, Any]:
    """What a configuration file holds.

    Raises:
        UsageError: It cannot be read, or is no mapping of keys to values.
    """
    try:
        text = read_text(path, SETTINGS)
        content = _json_or_yaml(text)
    except UnreadableError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path} holds no keys and values")
    return content


def _json_or_yaml(text: str) -> object:
    try:
        return parse_json(text)
    except MalformedError:
        return _yaml(text)


def _yaml(text: str) -> object:
    import yaml

    try:
        node = yaml.compose(text, yaml.SafeLoader)
        _check_node(node, {}, DEEPEST)
        content: object = yaml.safe_load(text)
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except UnreadableError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        what = str(error).replace("\n", " ")
        raise UnreadableError(f"it is neither JSON nor YAML: {what}") from error
    check_plain(content)
    return content


def _check_node(node: Any, sizes: dict[int, int], room: int) -> int:
    """Return how many nodes stand below one that YAML composed, aliases written out.

    Sizes already known are by identity. An anchor that holds itself has no end: it may go ``room`` deeper.

    Raises:
        UnreadableError: There are too many, or they stand too deep; or a number is too long.
    """
    if node is None or id(node) in sizes:
        return sizes.get(id(node), 0)
    if not room:
        raise UnreadableError(f"more than {DEEPEST} objects or lists stand inside one another")
    if isinstance(node.value, str):
        if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
            raise UnreadableError("a number in it is too long")
        return 1
    inside = [each for item in node.value for each in (item if isinstance(item, tuple) else (item,))]
    size = 1 + sum(_check_node(each, sizes, room - 1) for each in inside)
    if size > _MOST_NODES:
        raise UnreadableError(f"it has more than {_MOST_NODES} keys and values, aliases written out")
    sizes[id(node)] = size
    return size
