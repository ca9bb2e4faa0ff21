"""Data sets of Hugging Face's hub where the package ``datasets`` or the data are not there.

The few operations of ``datasets`` that training scripts use stand here over plain lists. Rows of sets on the hub have
the columns that their cards name; files on this disk are read.
"""

import csv
import importlib.machinery
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from memplan.errors import EstimateError
from memplan.files.read import UnreadableError, read_text
from memplan.tracing.script.loggers import Nothing

ROWS = 1_000
"""Rows of a set that is not there; a step is the same whatever their number. Chosen: they are tokenised for real."""
VERSION = "4.0.0"
"""What the stand-in says to those who ask; its operations are those of the package of that version."""
WORDS = 512
"""Words of a text in it. Chosen: as many as most scripts cut texts to."""
_TEXT = " ".join(["word"] * WORDS)
SHORT_TEXT = " ".join(["word"] * (WORDS // 4))
_PAIRS = {"mrpc": ("sentence1", "sentence2"), "rte": ("sentence1", "sentence2"), "wnli": ("sentence1", "sentence2"),
          "stsb": ("sentence1", "sentence2"), "qqp": ("question1", "question2"), "qnli": ("question", "sentence"),
          "mnli": ("premise", "hypothesis"), "sst2": ("sentence",), "cola": ("sentence",)}  # fmt: skip
_CARDS: Mapping[str, Mapping[str, Any]] = {
    "imdb": {"text": _TEXT, "label": 2},
    "ag_news": {"text": SHORT_TEXT, "label": 4},
    "yelp_review_full": {"text": _TEXT, "label": 5},
    "rotten_tomatoes": {"text": SHORT_TEXT, "label": 2},
    "emotion": {"text": SHORT_TEXT, "label": 6},
    "wikitext": {"text": _TEXT},
    "openwebtext": {"text": _TEXT},
    "c4": {"text": _TEXT, "url": "word"},
    "tinystories": {"text": _TEXT},
    "openassistant-guanaco": {"text": _TEXT},
    "alpaca": {"instruction": SHORT_TEXT, "input": "", "output": SHORT_TEXT, "text": _TEXT},
    "alpaca-cleaned": {"instruction": SHORT_TEXT, "input": "", "output": SHORT_TEXT},
    "databricks-dolly-15k": {
        "instruction": SHORT_TEXT,
        "context": SHORT_TEXT,
        "response": SHORT_TEXT,
        "category": "word",
    },
    "samsum": {"id": "0", "dialogue": _TEXT, "summary": SHORT_TEXT},
    "cnn_dailymail": {"article": _TEXT, "highlights": SHORT_TEXT, "id": "0"},
    "capybara": {"messages": [{"role": "user", "content": SHORT_TEXT}, {"role": "assistant", "content": SHORT_TEXT}]},
}
"""Name on the hub → columns: an example, or the number of classes of a label (the sets' cards on huggingface.co)."""


class Dataset:
    """Rows in columns (``datasets.Dataset``)."""

    def __init__(self, columns: Mapping[str, list[Any]], classes: Mapping[str, int] | None = None) -> None:
        self._columns = dict(columns)
        self._classes = dict(classes or {})

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
        return Dataset(self[list(places)], self._classes)

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


def spec_of(name: str, assume: Callable[[str], None]) -> importlib.machinery.ModuleSpec | None:
    """Where an import of ``datasets`` finds the stand-in."""
    if name.partition(".")[0] != "datasets":
        return None
    return importlib.machinery.ModuleSpec(name, _Loader(assume), is_package=True)  # type: ignore[arg-type]


class _Loader:
    def __init__(self, assume: Callable[[str], None]) -> None:
        self._assume = assume

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = DatasetsModule(spec.name)
        if spec.name == "datasets":
            self._assume("the package datasets is not installed: what scripts use of it is played on lists")
            vars(module).update(
                Dataset=Dataset, DatasetDict=DatasetDict, ClassLabel=ClassLabel, __version__=VERSION,
                load_dataset=lambda *args, **kwargs: load_dataset(self._assume, *args, **kwargs),
            )  # fmt: skip
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Everything is there."""


class DatasetsModule(ModuleType):
    """The package, or a module in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            vars(self)[name] = kind = type(name, (ClassLabel,), {})
            return kind
        return sys.modules.get(f"{self.__name__}.{name}") or Nothing()


def load_dataset(
    assume: Callable[[str], None],
    path: str,
    name: str | None = None,
    *_: Any,
    data_files: Any = None,
    split: Any = None,
    **__: Any,
) -> Any:
    """Files on this disk as they are, known sets of the hub with rows of their columns, others of those that are read.

    Raises:
        EstimateError: A file cannot be read.
    """
    if data_files is None and Path(path).suffix in _READERS and Path(path).is_file():
        data_files = path
    if data_files is not None:
        files = data_files if isinstance(data_files, Mapping) else {"train": data_files}
        splits = DatasetDict({key: _read(value) for key, value in files.items()})
    else:
        splits = DatasetDict(dict.fromkeys(("train", "validation", "test"), _stand_in(path, name, assume)))
    if split is None:
        return splits
    wanted = str(split).partition("[")[0]
    return splits.get(wanted, splits["train"])


def _stand_in(path: str, name: str | None, assume: Callable[[str], None]) -> Dataset:
    short = path.lower().rpartition("/")[2]
    card = _CARDS.get(short)
    if short == "glue" and name in _PAIRS:
        classes = 3 if name == "mnli" else 2
        card = {**dict.fromkeys(_PAIRS[name], SHORT_TEXT), "label": classes}
    if card is None:
        from memplan.tracing.script.unknown_columns import UnknownDataset

        return UnknownDataset(path, assume)
    told = f"each split has {ROWS:,} rows of {', '.join(card)}, texts of {WORDS} words"
    assume(f"the data set {path} is not there: {told}")
    classes_of = {column: value for column, value in card.items() if isinstance(value, int)}
    columns = {
        column: [row % value for row in range(ROWS)] if isinstance(value, int) else [value] * ROWS
        for column, value in card.items()
    }
    return Dataset(columns, classes_of)


def _read(files: Any) -> Dataset:
    rows: list[Any] = []
    for file in [files] if isinstance(files, str | Path) else files:
        try:
            rows += _READERS.get(Path(file).suffix, _lines)(read_text(file))
        except UnreadableError as error:
            raise EstimateError(f"{file}: {error}", hint="give the program a file of that form") from error
    return Dataset.from_list(rows)


def _lines(text: str) -> list[Any]:
    return [{"text": line} for line in text.splitlines()]


def _json(text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


_READERS: Mapping[str, Callable[[str], list[Any]]] = {
    ".txt": _lines, ".json": _json, ".jsonl": _json, ".csv": lambda text: list(csv.DictReader(text.splitlines())),
}  # fmt: skip
