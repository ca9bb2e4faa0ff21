"""A document that memplan writes as JSON, and reads.

Keys are sorted, integers are bytes unless they count, and minor versions only add.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memplan.contract.table import Constant, Tables
from memplan.contract.write import Writer
from memplan.errors import UsageError
from memplan.versions import installed

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA_VERSION = "1.0"
"""Of every document. A reader passes over keys that it does not know, and refuses another major version."""
_PROBLEMS_SHOWN = 8


def head(command: str) -> Mapping[str, Constant]:
    """Return the keys by which a document says what it is."""
    return {"schema_version": Constant(SCHEMA_VERSION), "command": Constant(command)}


def memplan_version(_: object) -> str:
    """Version of memplan."""
    return installed("memplan")


@dataclass(frozen=True, kw_only=True)
class Document:
    """What is exchanged under one name. Nothing is put together before it is asked for."""

    name: str
    """As ``memplan schema`` has it."""
    root: Any
    """The record, or a union of records."""
    tables: Tables = field(default_factory=dict)
    """How records stand where that is not field by field."""
    strict: bool = False
    """Is it read as people write it, who slip? Then ``true`` and ``"1"`` are no numbers, and no size is negative."""
    closed: bool = False
    """Is it written by hand? Then every key is a known one, no text is empty, all that is wrong is told, and what may
    be left out the schema does not require."""
    called: str = "this result"
    """As errors call it."""
    hint: str | None = None
    """What to do about an error."""

    def plain(self, record: Any) -> Any:
        """Return a record as plain data."""
        return self._write(record)

    def render(self, record: Any) -> str:
        """Return a record as text."""
        return json.dumps(self.plain(record), sort_keys=True, indent=2, allow_nan=False)

    def read(self, content: object, where: str | None = None) -> Any:
        """Read a record back.

        Raises:
            UsageError: Something is missing or of the wrong kind; names every place that is.
        """
        # Only reading and describing need it, and it takes longer to import than most commands take.
        from pydantic import ValidationError

        from memplan.contract.problems import problems

        try:
            return self._reader.validate_python(content)
        except ValidationError as error:
            lines = problems(error, self._schema_of_reader)
        except UsageError as error:
            raise UsageError(error.what, where=error.where or where, hint=error.hint or self.hint) from None
        left = 0 if self.closed else len(lines) - _PROBLEMS_SHOWN
        shown = [*lines[:_PROBLEMS_SHOWN], f"and {left} more"] if left > 0 else lines
        what = f"{self.called} cannot be read:" + "".join(f"\n    {line}" for line in shown)
        raise UsageError(what, where=where, hint=self.hint)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that every document of this name obeys."""
        from pydantic import TypeAdapter

        from memplan.contract.models import Models, Untitled

        if self.closed:
            found = self._schema_of_reader
        else:
            adapter: TypeAdapter[Any] = TypeAdapter(Models(self.tables, reading=False).of(self.root))
            found = adapter.json_schema(mode="serialization", schema_generator=Untitled)
        title = f"memplan {self.name} {SCHEMA_VERSION}"
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": title}

    @cached_property
    def _write(self) -> Any:
        return Writer(self.tables).of(self.root)

    @cached_property
    def _reader(self) -> "TypeAdapter[Any]":
        from pydantic import TypeAdapter

        from memplan.contract.models import Models

        models = Models(self.tables, reading=True, strict=self.strict, closed=self.closed)
        return TypeAdapter(models.of(self.root))

    @cached_property
    def _schema_of_reader(self) -> Mapping[str, Any]:
        from memplan.contract.models import Untitled

        return self._reader.json_schema(schema_generator=Untitled)


def of_command(
    content: object, command: str, where: str | None = None, *, hint: str | None = None
) -> Mapping[str, Any]:
    """Return the content of a file of memplan's, if it is of this command and of a version that is read here.

    Raises:
        UsageError: It is no such file, of another command, or of another major version.
    """
    found = of_version(content, where, hint=hint)
    if found.get("command") != command:
        raise UsageError(f"no result of memplan {command}, but of {found.get('command')!r}", where=where, hint=hint)
    return found


def of_version(content: object, where: str | None = None, *, hint: str | None = None) -> Mapping[str, Any]:
    """Return the content of a file of memplan's, if it is of a version that is read here; arguments as above.

    Raises:
        UsageError: It is no such file, or of another major version.
    """
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(version, str):
        raise UsageError("this is no result of memplan: it has no schema_version", where=where, hint=hint)
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        what = f"schema_version {version} is not read here, {SCHEMA_VERSION} is"
        raise UsageError(what, where=where, hint="update memplan, or make the file anew with this one")
    return content
