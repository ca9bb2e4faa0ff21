"""Data sets of the hub that nobody here knows: their columns are those that the program reads.

What a column holds is told by its name, as most cards of the hub name them; any other is a text.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memplan.tracing.script.hub_rows import ROWS, SHORT_TEXT, Dataset

_Held = tuple[str, Callable[[int], Any]]
"""What a column holds, in words, and the value of a row."""
_CLASS: _Held = ("one of two classes", lambda row: row % 2)
_NUMBER: _Held = ("the row's number", lambda row: row)
_TALK: _Held = ("a question and an answer", lambda _: [_said("user"), _said("assistant")])
_PICTURE: _Held = ("a picture of 256 x 256", lambda _: _picture())
_TEXT: _Held = ("a text of 128 words", lambda _: SHORT_TEXT)
_COLUMNS: Mapping[str, _Held] = {
    **dict.fromkeys(("label", "labels", "target"), _CLASS),
    **dict.fromkeys(("id", "idx"), _NUMBER),
    **dict.fromkeys(("messages", "conversations", "chosen", "rejected"), _TALK),
    **dict.fromkeys(("image", "img", "pixel_values"), _PICTURE),
}
"""Name of a column → what it holds. Chosen, as cards of the hub mostly name them."""


class UnknownDataset(Dataset):
    """Rows whose columns come to be when they are read.

    Args:
        path: Its name on the hub.
        assume: Takes what a column is taken to be.
        rows: How many there are.
    """

    def __init__(self, path: str, assume: Callable[[str], None], rows: int = ROWS) -> None:
        super().__init__({})
        self._path, self._assume, self._rows = path, assume, rows

    def __len__(self) -> int:
        return self._rows

    @property
    def column_names(self) -> list[str]:
        """Columns that were read; where none was, a text is the most likely one."""
        return _Names(self)

    def column(self, name: str) -> list[Any]:
        """Return a column, which is there from now on."""
        if name not in self._columns:
            held = _COLUMNS.get(name, _TEXT)
            what, value = held
            self._assume(f"the data set {self._path} is not there: {name} is {what} in each of {ROWS:,} rows")
            self._columns[name] = [value(row) for row in range(self._rows)]
            if held is _CLASS:
                self._classes[name] = 2
        return self._columns[name]

    @property
    def features(self) -> dict[str, Any]:
        """What each column holds; any that is asked for is there."""
        return _row(super().features, lambda name: Dataset({name: self.column(name)}, self._classes).features[name])

    def stored(self, key: Any) -> Any:
        """Return a column, or rows that have any column that is asked for."""
        if isinstance(key, str):
            return self.column(key)
        return _row(super().stored(key), lambda name: Dataset({name: self.column(name)})[key][name])

    def map(self, function: Callable[..., Any], *, remove_columns: Any = (), **options: Any) -> Dataset:
        """Apply a function; columns that nobody has read yet can be read afterwards, too."""
        made = super().map(function, remove_columns=remove_columns, **options)
        if remove_columns or len(made) != len(self):
            return made
        kept = UnknownDataset(self._path, self._assume, self._rows)
        kept._columns, kept._classes = made._columns, made._classes
        return kept

    def select(self, places: Iterable[int], **_: Any) -> Dataset:
        """Keep so many rows: which ones decides nothing."""
        kept = UnknownDataset(self._path, self._assume, len(list(places)))
        kept.set_transform(self._transform)
        return kept


class _Names(list[str]):
    """Names of columns; pictures and texts are among them once a program looks for them."""

    def __init__(self, data: UnknownDataset) -> None:
        self._data = data
        super().__init__(data._columns or ["text"])
        if not data._columns:
            data.column("text")

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and (name == "text" or _COLUMNS.get(name) is _PICTURE):
            self._data.column(name)
            return True
        return super().__contains__(name)


def _row(columns: Mapping[str, Any], read: Callable[[str], Any]) -> dict[str, Any]:
    """One row or several, which have any column that is asked for, as has what others make of it by its class."""

    class Row(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            self[name] = value = read(name)
            return value

    return Row(columns)


def _said(role: str) -> dict[str, str]:
    return {"role": role, "content": SHORT_TEXT}


def _picture() -> Any:
    from PIL import Image

    return Image.new("RGB", (256, 256))
