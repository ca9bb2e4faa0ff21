"""Laws of the contract: what is written is read back the same, obeys the schema, and errors say where."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.contract.document import Document, head, of_command
from memplan.contract.fields import descriptions
from memplan.contract.table import Computed, Table, columns, if_any, only, or_null
from memplan.errors import UsageError
from memplan.units import Bytes


class Kind(StrEnum):
    """A word."""

    ONE = "one"
    OTHER = "other"


class Grade(IntEnum):
    """A number that is written as a word."""

    LOW = 0
    HIGH = 1

    @property
    def word(self) -> str:
        """As it is written."""
        return self.name.lower()


class Span(NamedTuple):
    """A row."""

    start: int
    """First."""
    nbytes: int = 0
    """How large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One of two."""

    left: int
    """A number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """The other."""

    right: str
    """A text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A record that needs no table."""

    size: Bytes
    """Its bytes."""
    kind: Kind
    """A word."""
    path: Path
    """A file."""
    pair: tuple[int, str] | None = None
    """Two things, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """All forms together."""

    name: str
    """A name
    on two lines."""
    figure: str
    """Text that may be empty."""
    seconds: float
    """Wall time."""
    peak: int
    """A number that stands two objects deep."""
    inner: Inner | None
    """A record or nothing."""
    many: tuple[Inner, ...]
    """Records."""
    by_name: Mapping[str, Inner]
    """Records by name."""
    mode: Literal["a", "b"]
    """One of two words."""
    spans: tuple[Span, ...]
    """Rows that stand as columns."""
    rows: tuple[Span, ...] = ()
    """Rows that stand as objects."""
    members: tuple[Left | Right, ...] = ()
    """Records of two kinds."""

    @property
    def doubled(self) -> int:
        """Twice the peak."""
        return 2 * self.peak


def _hidden(outer: Outer) -> float | None:
    """Seconds that are null where there are none."""
    return outer.seconds or None


DOCUMENT = Document(
    name="outer",
    root=Outer,
    tables={
        Outer: Table(
            keys={
                **head("outer"),
                "class": "name",
                "figure": or_null("figure"),
                "doubled": "doubled",
                "size": "inner.size",
                "facts": {"timings": {"wall_seconds": "seconds"}, "peak": {"bytes": "peak"}},
                "inner": "inner",
                "seconds_or_null": _hidden,
                "spans": columns("spans"),
                "rows": if_any("rows"),
            }
        ),
        Span: Table(keys={"bytes": "nbytes"}),
    },
)
TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
NUMBER = st.integers(-(2**40), 2**40)
PATHS = st.sampled_from([Path("a/b.py"), Path("/c")])
INNER = st.builds(
    Inner, size=st.integers(0, 2**40), kind=st.sampled_from(Kind), path=PATHS, pair=st.none() | st.tuples(NUMBER, TEXT)
)
SPANS = st.lists(st.builds(Span, NUMBER, NUMBER), max_size=3).map(tuple)
OUTER = st.builds(
    Outer,
    name=TEXT,
    figure=TEXT,
    seconds=st.floats(allow_nan=False, allow_infinity=False),
    peak=NUMBER,
    inner=st.none() | INNER,
    many=st.lists(INNER, max_size=3).map(tuple),
    by_name=st.dictionaries(TEXT, INNER, max_size=3),
    mode=st.sampled_from(["a", "b"]),
    spans=SPANS,
    rows=SPANS,
    members=st.lists(st.builds(Left, left=NUMBER) | st.builds(Right, right=TEXT), max_size=3).map(tuple),
)
ONE = Outer(name="n", figure="", seconds=0.5, peak=3, inner=None, many=(), by_name={}, mode="a", spans=(Span(1, 2),))


@given(OUTER)
def test_what_is_written_is_read_back_the_same_and_obeys_the_schema(outer: Outer) -> None:
    content = json.loads(DOCUMENT.render(outer))
    jsonschema.Draft202012Validator(DOCUMENT.schema).validate(content)
    assert DOCUMENT.read(content) == outer


def test_a_table_says_what_differs() -> None:
    content = DOCUMENT.plain(ONE)
    assert content["class"] == "n"
    assert content["figure"] is content["size"] is None
    assert content["doubled"] == 6
    assert content["facts"] == {"timings": {"wall_seconds": 0.5}, "peak": {"bytes": 3}}
    assert content["spans"] == {"start": [1], "bytes": [2]}
    assert not {"rows", "name", "peak", "seconds"} & content.keys()
    assert list(json.loads(DOCUMENT.render(ONE))) == sorted(content)


def test_the_schema_has_types_and_docstrings() -> None:
    schema = DOCUMENT.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["class"] == {"description": "A name\non two lines.", "type": "string"}
    assert schema["properties"]["command"]["const"] == "outer"
    assert schema["properties"]["seconds_or_null"]["description"] == _hidden.__doc__
    assert schema["properties"].keys() - set(schema["required"]) == {"rows"}
    assert descriptions(Inner)["size"] == "Its bytes."


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (
            {"facts": {"timings": {"wall_seconds": "x"}, "peak": {"bytes": 1}}},
            "facts.timings.wall_seconds: expected a number, found 'x'",
        ),
        ({"many": [None]}, "many[0]: expected an object, found nothing"),
        (
            {"by_name": {"a": {"size": 1, "kind": "none", "path": "p"}}},
            "by_name.a.kind: expected one of one, other, found 'none'",
        ),
        ({"mode": "c"}, "mode: expected one of a, b, found 'c'"),
        ({"spans": {"start": [1], "bytes": []}}, "spans: the columns start, bytes differ in length"),
        ({"spans": {"start": [1, "x"], "bytes": [1, 2]}}, "spans.start[1]: expected a whole number"),
        ({"rows": [{"bytes": 1}]}, "rows[0].start: missing"),
    ],
)
def test_errors_say_where(broken: Mapping[str, object], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        DOCUMENT.read(json.loads(DOCUMENT.render(ONE)) | broken, "file.json")
    assert problem in caught.value.what
    assert caught.value.where == "file.json"


def test_many_problems_are_told_as_the_first_and_their_number() -> None:
    with pytest.raises(UsageError, match=r"(?s)class: missing"):
        DOCUMENT.read({})
    with pytest.raises(UsageError, match=r"(?s)many\[7\].*\n    and 3 more$"):
        DOCUMENT.read(json.loads(DOCUMENT.render(ONE)) | {"many": [None] * 11})
    with pytest.raises(UsageError, match="it: expected an object"):
        DOCUMENT.read([])


def test_a_later_minor_version_adds_keys_and_an_older_one_lacks_some() -> None:
    content = json.loads(DOCUMENT.render(ONE)) | {"new": {"keys": 1}}
    del content["members"]
    assert DOCUMENT.read(content) == ONE


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "no schema_version"),
        ({"schema_version": 1}, "no schema_version"),
        ({"schema_version": "2.0"}, "schema_version 2.0 is not read here"),
        ({"schema_version": "1.7", "command": "other"}, "no result of memplan outer, but of 'other'"),
    ],
)
def test_other_files_are_refused(content: object, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        of_command(content, "outer")
    assert of_command({"schema_version": "1.7", "command": "outer"}, "outer")


class Leaf(NamedTuple):
    """What stands as one attribute."""

    grade: Grade
    """How bad."""
    plain: Enum
    """Written by its value."""
    inner: Inner
    """Its keys stand beside these."""
    left: Left | None
    """So do these, where there are any."""


class Around(NamedTuple):
    """A record in which a record is spread that others are spread in."""

    leaf: Leaf
    """Its keys stand beside these."""
    more: int
    """One more."""


def test_classes_stand_as_an_attribute_and_records_are_spread() -> None:
    inner = Inner(size=Bytes(1), kind=Kind.ONE, path=Path("a"))
    tables = {Leaf: Table(spread=("inner", "left")), Grade: "word", Inner: only("size")}
    document = Document(name="leaf", root=Leaf, tables=tables)
    around = Document(name="around", root=Around, tables={**tables, Around: Table(spread=("leaf",))})
    assert around.schema["properties"].keys() - {"more"} == document.schema["properties"].keys()
    content = document.plain(Leaf(Grade.HIGH, Kind.OTHER, inner, None))
    assert content == {"grade": "high", "plain": "other", "size": 1}
    assert {"grade", "plain", "size", "left"} == document.schema["properties"].keys()


@pytest.mark.parametrize("size", [True, "1", 1.0, -1])
def test_what_people_write_is_read_strictly(size: object) -> None:
    document = Document(name="inner", root=Inner, strict=True, called="the file", hint="write numbers")
    content = {"size": 1, "kind": "one", "path": "a"}
    assert document.read(content) == Inner(size=Bytes(1), kind=Kind.ONE, path=Path("a"))
    with pytest.raises(
        UsageError, match="the file cannot be read:\n    size: expected a whole number of at least 0"
    ) as caught:
        document.read(content | {"size": size})
    assert caught.value.hint == "write numbers"


def _bounded(inner: Inner) -> int | None:
    """Bytes, null where there are none."""
    return inner.size or None


def test_a_computed_key_is_read_back_into_its_field() -> None:
    tables = {Inner: Table(keys={"size": Computed(_bounded, "size")})}
    document = Document(name="inner", root=Inner, tables=tables)
    inner = Inner(size=Bytes(0), kind=Kind.ONE, path=Path("a"))
    assert document.plain(inner)["size"] is None
    assert document.read(document.plain(inner) | {"size": 4}).size == 4
    with pytest.raises(UsageError, match="size: expected a whole number"):
        document.read(document.plain(inner))
