"""Rows in columns, as scripts use them by the package ``datasets``: the operations that most need, over plain lists."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

ROWS = 1_000
"""Rows of a set that is not there; a step is the same whatever their number. Chosen: they are tokenised for real."""
WORDS = 512
"""Words of a text in it. Chosen: as many as most scripts cut texts to."""
LONG_TEXT = " ".join(["word"] * WORDS)
SHORT_TEXT = " ".join(["word"] * (WORDS // 4))


class Dataset:
    """Rows in columns (``datasets.Dataset``)."""

    def __init__(self, columns: Mapping[str, list[Any]], classes: Mapping[str, int] | None = None) -> None:
        self._columns = dict(columns)
        self._classes = dict(classes or {})
        self._transform: Callable[[Any], Any] | None = None

    @classmethod
    def from_dict(cls, columns: Mapping[str, list[Any]], **_: Any) -> "Dataset":
        """Columns as they are."""
        return cls(columns)

    @classmethod
    def from_list(cls, rows: list[Mapping[str, Any]], **_: Any) -> "Dataset":
        """Rows turned into columns."""
        return cls({name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())})

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    @property
    def features(self) -> dict[str, Any]:
        """What each column holds."""
        return {name: ClassLabel(self._classes.get(name)) for name in self._columns}

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, key: Any) -> Any:
        if self._transform is None or isinstance(key, str):
            return self.stored(key)
        if isinstance(key, slice | Iterable):
            return self._transform(self.stored(key))
        return {name: values[0] for name, values in self._transform(self.stored([key])).items()}

    def stored(self, key: Any) -> Any:
        """Return a column, a row or several, before what ``set_transform`` has set."""
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, slice):
            return {name: values[key] for name, values in self._columns.items()}
        if isinstance(key, Iterable):
            places = [int(place) for place in key]
            return {name: [values[place] for place in places] for name, values in self._columns.items()}
        if not -len(self) <= int(key) < len(self):
            raise IndexError(key)
        return {name: values[int(key)] for name, values in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def map(
        self,
        function: Callable[..., Any],
        *,
        batched: bool = False,
        batch_size: int = 1000,
        with_indices: bool = False,
        remove_columns: Any = (),
        fn_kwargs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> "Dataset":
        """Apply a function to rows or batches of them; its columns join those that stay."""
        gone = {remove_columns} if isinstance(remove_columns, str) else set(remove_columns or ())
        made: dict[str, list[Any]] = {}
        size = batch_size if batched else 1
        for first in range(0, len(self), size):
            places = list(range(first, min(first + size, len(self))))
            rows = self[first : first + size] if batched else self[first]
            index = [places if batched else first] if with_indices else []
            result = function(rows, *index, **(fn_kwargs or {}))
            merged = {name: values for name, values in dict(rows).items() if name not in gone} | dict(result or {})
            for name, values in merged.items():
                made.setdefault(name, []).extend(values if batched else [values])
        return Dataset(made, self._classes)

    def filter(self, function: Callable[..., Any], **_: Any) -> "Dataset":
        """Keep the rows that it likes."""
        return self.select([place for place, row in enumerate(self) if function(row)])

    def select(self, places: Iterable[int], **_: Any) -> "Dataset":
        """Keep rows by their places."""
        kept = Dataset(self.stored(list(places)), self._classes)
        kept.set_transform(self._transform)
        return kept

    def set_transform(self, transform: Callable[[Any], Any] | None, **_: Any) -> None:
        """Let a function have a say in rows when they are read; it is given several at once."""
        self._transform = transform

    def with_transform(self, transform: Callable[[Any], Any] | None, **_: Any) -> "Dataset":
        """Set it for what is returned."""
        made = copy.copy(self)
        made.set_transform(transform)
        return made

    def take(self, count: int) -> "Dataset":
        """Keep the first rows."""
        return self.select(range(min(count, len(self))))

    def skip(self, count: int) -> "Dataset":
        """Leave the first rows out."""
        return self.select(range(min(count, len(self)), len(self)))

    def shuffle(self, *_: Any, **__: Any) -> "Dataset":
        """As they are: their order decides no size."""
        return self

    set_format = with_format = cast_column = flatten_indices = sort = shuffle

    def train_test_split(self, test_size: Any = 0.25, **_: Any) -> "DatasetDict":
        """Two parts."""
        count = int(len(self) * test_size) if isinstance(test_size, float) else test_size or len(self) // 4
        cut = len(self) - count
        return DatasetDict(train=self.select(range(cut)), test=self.select(range(cut, len(self))))

    def rename_column(self, before: str, after: str) -> "Dataset":
        """Another name for a column."""
        return Dataset(
            {after if name == before else name: values for name, values in self._columns.items()}, self._classes
        )

    def remove_columns(self, names: Any) -> "Dataset":
        """Fewer columns."""
        gone = {names} if isinstance(names, str) else set(names)
        return Dataset({name: values for name, values in self._columns.items() if name not in gone}, self._classes)

    def add_column(self, name: str, values: list[Any]) -> "Dataset":
        """One column more."""
        return Dataset({**self._columns, name: values}, self._classes)

    def unique(self, name: str) -> list[Any]:
        """Values of a column, each once."""
        return list(dict.fromkeys(self._columns[name]))


class ClassLabel:
    """What a column holds (``datasets.ClassLabel``, or another feature)."""

    def __init__(self, num_classes: Any = None, *_: Any, **__: Any) -> None:
        num_classes = num_classes if isinstance(num_classes, int) else None
        self.num_classes = num_classes
        self.names = [str(label) for label in range(num_classes or 0)]
        self.dtype = "string" if num_classes is None else "int64"


class DatasetDict(dict[str, Dataset]):
    """Splits (``datasets.DatasetDict``), each of which does what is asked."""

    def __getattr__(self, name: str) -> Any:
        if name == "column_names":
            return {split: data.column_names for split, data in self.items()}
        if name.startswith("_") or not hasattr(Dataset, name):
            raise AttributeError(name)
        return lambda *args, **kwargs: DatasetDict(
            {split: getattr(data, name)(*args, **kwargs) for split, data in self.items()}
        )
