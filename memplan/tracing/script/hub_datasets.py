"""Data sets of Hugging Face's hub where the package ``datasets`` or the data are not there.

Rows of sets on the hub have the columns that their cards name, or those that the program reads; files on this disk are
read.
"""

import csv
import importlib
import importlib.machinery
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.errors import EstimateError
from memplan.files.read import UnreadableError, read_text
from memplan.tracing.script.hub_rows import LONG_TEXT, ROWS, SHORT_TEXT, WORDS, ClassLabel, Dataset, DatasetDict
from memplan.tracing.script.loggers import Nothing
from memplan.tracing.script.unknown_columns import UnknownDataset

VERSION = "4.0.0"
"""What the stand-in says to those who ask; its operations are those of the package of that version."""
_PAIRS = {"mrpc": ("sentence1", "sentence2"), "rte": ("sentence1", "sentence2"), "wnli": ("sentence1", "sentence2"),
          "stsb": ("sentence1", "sentence2"), "qqp": ("question1", "question2"), "qnli": ("question", "sentence"),
          "mnli": ("premise", "hypothesis"), "sst2": ("sentence",), "cola": ("sentence",)}  # fmt: skip
_TALK = [{"role": "user", "content": SHORT_TEXT}, {"role": "assistant", "content": SHORT_TEXT}]
_CARDS: Mapping[str, Mapping[str, Any]] = {
    "imdb": {"text": LONG_TEXT, "label": 2},
    "ag_news": {"text": SHORT_TEXT, "label": 4},
    "yelp_review_full": {"text": LONG_TEXT, "label": 5},
    "rotten_tomatoes": {"text": SHORT_TEXT, "label": 2},
    "emotion": {"text": SHORT_TEXT, "label": 6},
    "wikitext": {"text": LONG_TEXT},
    "openwebtext": {"text": LONG_TEXT},
    "c4": {"text": LONG_TEXT, "url": "word"},
    "tinystories": {"text": LONG_TEXT},
    "openassistant-guanaco": {"text": LONG_TEXT},
    "alpaca": {"instruction": SHORT_TEXT, "input": "", "output": SHORT_TEXT, "text": LONG_TEXT},
    "alpaca-cleaned": {"instruction": SHORT_TEXT, "input": "", "output": SHORT_TEXT},
    "databricks-dolly-15k": {
        "instruction": SHORT_TEXT,
        "context": SHORT_TEXT,
        "response": SHORT_TEXT,
        "category": "word",
    },
    "samsum": {"id": "0", "dialogue": LONG_TEXT, "summary": SHORT_TEXT},
    "cnn_dailymail": {"article": LONG_TEXT, "highlights": SHORT_TEXT, "id": "0"},
    "capybara": {"messages": _TALK},
    "ultrachat_200k": {"prompt": SHORT_TEXT, "prompt_id": "0", "messages": _TALK},
    "ultrafeedback_binarized": {"chosen": _TALK, "rejected": _TALK},
    "hh-rlhf": {"chosen": LONG_TEXT, "rejected": LONG_TEXT},
    "tldr": {"prompt": LONG_TEXT, "completion": SHORT_TEXT},
    "gsm8k": {"question": SHORT_TEXT, "answer": SHORT_TEXT},
    "guanaco-llama2-1k": {"text": LONG_TEXT},
    "xsum": {"document": LONG_TEXT, "summary": SHORT_TEXT, "id": "0"},
    "billsum": {"text": LONG_TEXT, "summary": LONG_TEXT, "title": SHORT_TEXT},
    "dialogsum": {"id": "0", "dialogue": LONG_TEXT, "summary": SHORT_TEXT, "topic": "word"},
    "bookcorpus": {"text": SHORT_TEXT},
}
"""Name on the hub → columns: an example, or the number of classes of a label (the sets' cards on huggingface.co)."""


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


def installed_datasets(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let the package's own ``load_dataset`` read what is on this disk, and stand in for what is not."""
    real = module.load_dataset
    stack.enter_context(mock.patch.object(module.config, "HF_HUB_OFFLINE", True))

    hasher, numbers = module.fingerprint.Hasher, itertools.count()
    hash_of = hasher.hash

    def hash_or_number(value: Any) -> str:
        # It tells a function by its pickle, and stand-ins that it uses have none: no cache is of use to it then.
        try:
            with warnings.catch_warnings(action="ignore"):
                return str(hash_of(value))
        except Exception:  # noqa: BLE001 - pickles run code of anybody's.
            return f"{next(numbers):016x}"

    stack.enter_context(mock.patch.object(hasher, "hash", staticmethod(hash_or_number)))

    def load(path: str, *args: Any, **kwargs: Any) -> Any:
        # What it makes of files goes to its cache, which Arrow reads from outside of Python: a real folder is needed.
        for further in ({}, {"cache_dir": tempfile.mkdtemp()}):
            with suppress(OSError, ValueError, RuntimeError, ImportError):
                return real(path, *args, **{**kwargs, **further})
        played = load_dataset(assume, path, *args, **kwargs)
        if isinstance(played, Dataset):
            return _as_installed(module, played)
        return module.DatasetDict({split: _as_installed(module, data) for split, data in played.items()})

    for owner in (module, module.load):
        stack.enter_context(mock.patch.object(owner, "load_dataset", load))
    with suppress(ImportError):  # It came with datasets 2.9.
        distributed = importlib.import_module(f"{module.__name__}.distributed")
        shared = _shared(distributed.split_dataset_by_node)
        stack.enter_context(mock.patch.object(distributed, "split_dataset_by_node", shared))
    for name in ("map", "filter", "save_to_disk"):
        stack.enter_context(mock.patch.object(module.Dataset, name, _in_this_process(getattr(module.Dataset, name))))


def _shared(split_by_node: Callable[..., Any]) -> Callable[..., Any]:
    """``split_dataset_by_node``, also of columns that nobody knows yet."""

    @wraps(split_by_node)
    def share(data: Any, rank: int, world_size: int, **how: Any) -> Any:
        if isinstance(data, UnknownDataset):
            return data.select(range(len(data) // world_size))
        return split_by_node(data, rank, world_size, **how)

    return share


def _in_this_process(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that other processes may share (``num_proc``): here there are none."""

    @wraps(method)
    def alone(data: Any, *args: Any, num_proc: int | None = None, **kwargs: Any) -> Any:
        del num_proc
        return method(data, *args, **kwargs)

    return alone


def _as_installed(module: ModuleType, data: Dataset) -> Any:
    """Rows as the package has them, which other libraries ask for; columns that nobody knows yet stay as they are."""
    if isinstance(data, UnknownDataset):
        return data
    made = module.Dataset.from_dict({name: data[name] for name in data.column_names})
    for name in data.column_names:
        classes = data.features[name].num_classes
        made = made if classes is None else made.cast_column(name, module.ClassLabel(num_classes=classes))
    return made


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
        return UnknownDataset(path, assume)
    told = f"each split has {ROWS:,} rows of {', '.join(card)}, texts of {WORDS} words"
    assume(f"the data set {path} is not there: {told}")
    classes_of = {column: value for column, value in card.items() if isinstance(value, int)}
    columns = {
        column: [row % value for row in range(ROWS)] if isinstance(value, int) else [value] * ROWS
        for column, value in card.items()
    }
    if short == "glue":
        columns["idx"] = list(range(ROWS))
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
