"""The schemas that memplan 0.1.0 published, written by hand: what is written now still obeys them."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

from memplan.report.documents import schema

FOLDER = Path(__file__).parent / "schemas_of_0_1_0"


@cache
def golden(name: str) -> jsonschema.Draft202012Validator:
    """Return the schema that 0.1.0 published under a name."""
    schemas = {file.name: json.loads(file.read_text("utf-8")) for file in FOLDER.glob("*.json")}
    registry: Any = Registry().with_resources(
        (file, Resource.from_contents(schema)) for file, schema in schemas.items()
    )
    return jsonschema.Draft202012Validator(schemas[f"{name}-1.0.json"], registry=registry)


@cache
def derived(name: str) -> jsonschema.Draft202012Validator:
    """Return the schema that ``memplan schema`` prints."""
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def obey(name: str, content: Mapping[str, Any]) -> None:
    """Hold a document against both.

    Raises:
        jsonschema.ValidationError: It is not of one of them.
    """
    golden(name).validate(content)
    derived(name).validate(content)
