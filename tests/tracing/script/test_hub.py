"""Models, tokenizers and data sets of the hub in scripts that nobody has changed."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.presets.hub_names import preset_of
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.tracing.script.hub_datasets import load_dataset
from memplan.tracing.script.hub_rows import Dataset, DatasetDict
from memplan.tracing.script.hub_uploads import TOLD_NOTHING
from tests.support.libraries import library

transformers, accelerate = library("transformers"), library("accelerate")

GLUE = """
import evaluate
import numpy as np
from datasets import load_dataset
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                          TrainingArguments)

raw = load_dataset("glue", "mrpc")
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
def encode(rows):
    return tokenizer(rows["sentence1"], rows["sentence2"], truncation=True, max_length=64)
data = raw.map(encode, batched=True)
classes = raw["train"].features["label"].num_classes
model = AutoModelForSequenceClassification.from_pretrained(
    "bert-base-uncased", num_labels=classes, num_hidden_layers=1, hidden_size=32, num_attention_heads=2,
    intermediate_size=64)
metric = evaluate.load("glue", "mrpc")
arguments = TrainingArguments("out", per_device_train_batch_size=8, report_to="none")
trainer = Trainer(model, arguments, train_dataset=data["train"], eval_dataset=data["validation"],
                  data_collator=DataCollatorWithPadding(tokenizer), processing_class=tokenizer)
trainer.train()
"""
PLAIN = """
import json, sys
import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator

name, file = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(name)
tokenizer.pad_token = tokenizer.eos_token
def encode(row):
    made = tokenizer(f"{row['instruction']} {row['output']}", truncation=True, max_length=32, padding="max_length")
    return {**made, "labels": made["input_ids"].copy()}
data = load_dataset("json", data_files=file)["train"].map(encode, remove_columns=["instruction", "output"])
model = AutoModelForCausalLM.from_pretrained(name, n_layer=1, n_embd=32, n_head=2, dtype=torch.float32)
accelerator = Accelerator()
loader = DataLoader(data, batch_size=4, collate_fn=default_data_collator)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(10):
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Estimate]:
    def estimated(code: str, *arguments: str) -> Estimate:
        path = tmp_path / "train.py"
        path.write_text(code)
        monkeypatch.chdir(tmp_path)
        spec = JobSpec(target=ScriptTarget(path=path, arguments=arguments))
        return estimate_here(spec, [load_profile("h100-80g")])[0]

    return estimated


@pytest.mark.slow
def test_a_trainer_on_a_set_of_the_hub(run: Callable[..., Estimate]) -> None:
    estimate = run(GLUE)
    said = " ".join(estimate.assumptions)
    assert "preset:bert-base" in said
    assert "the tokenizer of bert-base-uncased" in said
    assert "data set glue is not there" in said
    assert 1_000_000 < estimate.parameters < 1_100_000  # 30,522 words of 32 numbers, a layer, a head
    assert "datasets" not in sys.modules


@pytest.mark.slow
def test_accelerate_on_a_file(run: Callable[..., Estimate], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instruction": "say it", "output": "it"}\n' * 40)
    estimate = run(PLAIN, "openai-community/gpt2", "rows.jsonl")
    # 50,257 words and 1,024 places of 32 numbers; a block of 12 d² + 13 d; the last norm.
    assert estimate.parameters == (50_257 + 1_024) * 32 + 12 * 32**2 + 13 * 32 + 64


@pytest.mark.slow
def test_a_name_that_nobody_knows_is_refused_with_the_line(run: Callable[..., Estimate]) -> None:
    with pytest.raises(EstimateError, match="somebody/unheard-of is not on this disk") as caught:
        run("from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('somebody/unheard-of').train()\n")
    assert "memplan presets" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "preset"),
    [("gpt2", "gpt2"), ("bert-base-uncased", "bert-base"), ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
     ("google/gemma-2-2b-it", "gemma-2-2b"), ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"), ("t5-small", "t5-small"),
     ("Qwen/Qwen2-0.5B-Instruct", "qwen2.5-0.5b"), ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
     ("EleutherAI/pythia-70m-deduped", "pythia-70m"), ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b"),
     ("distilbert-base-uncased-finetuned-sst-2-english", "distilbert-base"), ("google/t5-v1_1-base", "flan-t5-base"),
     ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"), ("decapoda-research/llama-7b-hf", "llama-2-7b")],
)  # fmt: skip
def test_names_on_the_hub(name: str, preset: str) -> None:
    found = preset_of(name)
    assert found is not None
    assert found.name == preset


@pytest.mark.parametrize(
    "name", ["dslim/bert-large-NER", "textattack/bert-base-cased-finetuned-x", "google/gemma-3-4b-it"]
)
def test_names_whose_vocabulary_or_size_nobody_has_written_down_are_not_guessed(name: str) -> None:
    assert preset_of(name) is None


def test_operations_of_data_sets(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n3,z\n")
    data = load_dataset(print, "csv", data_files=str(tmp_path / "t.csv"), split="train")
    assert isinstance(data, Dataset)
    assert data.filter(lambda row: row["a"] != "2")["b"] == ["x", "z"]
    assert data.map(lambda row: {"c": row["a"] * 2}, remove_columns="a").column_names == ["b", "c"]
    counted = data.map(lambda rows, places: {"n": places}, batched=True, batch_size=2, with_indices=True)
    assert counted["n"] == [0, 1, 2]
    parts = data.train_test_split(test_size=1)
    assert isinstance(parts, DatasetDict)
    assert parts.rename_column("a", "q")["test"][0] == {"q": "3", "b": "z"}


def test_pairs_of_preferences_are_conversations() -> None:
    data = load_dataset(print, "trl-lib/ultrafeedback_binarized", split="train")
    assert [turn["role"] for turn in data[0]["chosen"]] == ["user", "assistant"]
    assert data.column_names == ["chosen", "rejected"]


def test_a_data_file_that_is_missing_is_named() -> None:
    with pytest.raises(EstimateError, match=r"missing\.txt: there is no such file"):
        load_dataset(print, "text", data_files={"train": "missing.txt"})


def test_columns_that_nobody_knows_are_those_that_are_read() -> None:
    told: list[str] = []
    data = load_dataset(told.append, "someone/quotes")["train"]
    assert not told
    tokens = data.map(lambda rows: {"n": [len(text.split()) for text in rows["quote"]]}, batched=True)
    assert tokens["n"] == [128] * 1_000
    assert tokens.column_names == ["quote", "n"]
    assert data.select(range(10)).map(lambda row: {"turns": len(row["messages"])})["turns"] == [2] * 10
    assert [row["label"] for row in data.select(range(3))] == [0, 1, 0]
    assert data.features["quote"].dtype == "string"
    assert [sentence for sentence in told if "quote is a text of 128 words" in sentence]
    assert load_dataset(told.append, "someone/other", split="train[:1%]").column_names == ["text"]


def test_rows_whose_columns_nobody_knows_can_be_copied() -> None:
    row = load_dataset(lambda _: None, "someone/questions")["train"][0]
    unread, text = copy.deepcopy([row]), row["prompt"]
    assert copy.deepcopy(row) == copy.copy(row) == {"prompt": text}
    # As accelerate sends rows to a device.
    assert unread[0]["prompt"] == type(row)({})["prompt"] == text


def test_rows_of_pictures_are_transformed_when_they_are_read() -> None:
    told: list[str] = []
    data = load_dataset(told.append, "someone/captions")["train"]
    names = data.column_names
    assert "input_ids" not in names
    assert "image" in names
    assert "text" in names
    sizes = data.with_transform(lambda rows: {"sizes": [picture.size for picture in rows["image"]]})
    assert sizes[3] == {"sizes": (256, 256)}
    assert sizes.select([1, 2])[:2] == {"sizes": [(256, 256)] * 2}
    assert data[3]["text"].startswith("word")
    assert any("image is a picture" in sentence for sentence in told)


SAVING = """
import os
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=100)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    ids = torch.randint(0, 100, (2, 16), device=model.device)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.save_pretrained("out")
    save_file(model.state_dict(), "out/other.safetensors")
    assert {"config.json", "model.safetensors", "other.safetensors"} <= set(os.listdir("out"))
"""


CHAT = """
import sys
import huggingface_hub
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2-0.5B")
words = tokenizer.get_vocab()
assert "<|im_end|>" in words and 0 <= words["<|im_end|>"] < len(words)
assert "sesquipedalian" not in words
tokenizer.eos_token = "<|im_end|>"
assert 0 <= tokenizer.eos_token_id < len(words)
assert tokenizer.add_special_tokens({"additional_special_tokens": ["<|one|>", "<|two|>"]}) == 2
repository = huggingface_hub.HfApi().create_repo("mine", exist_ok=True).repo_id
huggingface_hub.upload_folder(repo_id=repository, folder_path=".")
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2-0.5B", num_hidden_layers=1, hidden_size=32, num_attention_heads=2, num_key_value_heads=2,
    intermediate_size=64)
rows = [{"input_ids": [*range(16)], "labels": [*range(16)]} for _ in range(64)]
arguments = TrainingArguments("out", report_to="none", push_to_hub="push" in sys.argv)
Trainer(model, arguments, train_dataset=rows, data_collator=default_data_collator).train()
"""


def test_a_model_that_is_pushed_to_the_hub_is_told_to_nobody(run: Callable[..., Estimate]) -> None:
    kept, pushed = run(CHAT), run(CHAT, "push")
    assert TOLD_NOTHING in pushed.assumptions
    assert "<|im_end|> is a token of Qwen/Qwen2-0.5B" in pushed.assumptions
    assert pushed.peak == kept.peak


def test_weights_are_saved_nowhere(run: Callable[..., Estimate], tmp_path: Path) -> None:
    estimate = run(SAVING)
    assert any("weights are not saved" in sentence for sentence in estimate.assumptions)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


INSTALLED = """
from types import SimpleNamespace
config = SimpleNamespace(HF_HUB_OFFLINE=False)
def load_dataset(path, *args, data_files=None, cache_dir=None, **kwargs):
    if data_files is None:
        raise ConnectionError("Couldn't reach the hub")
    if cache_dir is None:
        raise FileNotFoundError("Arrow finds no file in the cache")
    return {"train": [{"quote": "three small words"}]}
load = SimpleNamespace(load_dataset=load_dataset)
class Hasher:
    @classmethod
    def hash(cls, value):
        raise RecursionError
fingerprint = SimpleNamespace(Hasher=Hasher)
ClassLabel = dict
DatasetDict = dict
class Dataset(list):
    map = filter = save_to_disk = list.copy
    @classmethod
    def from_dict(cls, columns):
        return cls({name: values[row] for name, values in columns.items()} for row in range(2))
    def cast_column(self, name, feature):
        self.feature = feature
        return self
"""
SHARING = """
def split_dataset_by_node(dataset, rank, world_size):
    return list(dataset)[rank::world_size]
"""
READING = """
import torch
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node

import datasets

assert datasets.fingerprint.Hasher.hash(1) != datasets.fingerprint.Hasher.hash(1)
known = load_dataset("imdb", split="train")
assert type(known) is datasets.Dataset and known.feature == {"num_classes": 2} and known[1]["label"] == 1
rows = [load_dataset("json", data_files="rows.json")["train"][0], load_dataset("someone/quotes")["train"][0]]
sizes = [len(row["quote"].split()) for row in rows]
assert sizes == [3, 128], sizes
assert load_dataset("someone/quotes")["train"].features["label"].names == ["0", "1"]
assert load_dataset("glue", "mrpc")["train"][1]["idx"] == 1
assert len(split_dataset_by_node(load_dataset("someone/quotes")["train"], rank=1, world_size=8)) == 125
assert len(split_dataset_by_node(known, rank=1, world_size=2)) == 1
model = torch.nn.Embedding(sum(sizes), 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    model(torch.arange(4).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_package_that_is_installed_reads_what_is_there(
    run: Callable[..., Estimate], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path_factory.mktemp("site")  # Beside the program it would be the program's own.
    (site / "datasets").mkdir()
    (site / "datasets" / "__init__.py").write_text(INSTALLED)
    (site / "datasets" / "distributed.py").write_text(SHARING)
    monkeypatch.syspath_prepend(site)
    estimate = run(READING)
    assert [sentence for sentence in estimate.assumptions if "someone/quotes is not there" in sentence]
    assert estimate.parameters == (3 + 128) * 8


def test_a_processor_of_a_model_of_texts_is_its_tokenizer(run: Callable[..., Estimate], tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"instruction": "a", "output": "b"}]')
    assert run(PLAIN.replace("AutoTokenizer", "AutoProcessor"), "gpt2", "rows.json").parameters > 0


def test_columns_that_were_not_read_are_there_after_a_map() -> None:
    rows = load_dataset(lambda _: None, "someone/news", split="train").train_test_split(test_size=0.1)["test"]
    named = rows.map(lambda batch: {"word": ["no" if each else "yes" for each in batch["label"]]}, batched=True)
    assert (len(named), named[1]["word"], len(named[1]["text"].split())) == (100, "no", 128)
    assert named.map(lambda row: {"size": len(row["word"])}, remove_columns=["word", "label", "text"])[1] == {"size": 2}


OLDER = """
import torch
from accelerate import Accelerator, DistributedType

accelerator = Accelerator()
net = torch.nn.Linear(8, 8)
net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters()))
if accelerator.distributed_type == DistributedType.TPU:
    raise SystemExit("this is no TPU")
for _ in range(5):
    accelerator.backward(net(torch.ones(4, 8, device=accelerator.device)).sum())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_script_for_an_older_accelerate_may_ask_for_a_tpu(run: Callable[..., Estimate]) -> None:
    assert run(OLDER).parameters == 72


COMMAND = """
import sys
from accelerate.commands.launch import launch_command, launch_command_parser
launch_command(launch_command_parser().parse_args(["--num_processes", "1", "inner.py", *sys.argv[1:]]))
"""
INNER = OLDER.replace("torch.nn.Linear(8, 8)", "torch.nn.Linear(8, int(sys.argv[1]))").replace(
    "import torch", "import sys, torch", 1
)


def test_what_a_command_launches_by_accelerate_is_traced(run: Callable[..., Estimate], tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(INNER)
    estimate = run(COMMAND, "16")
    assert estimate.parameters == 8 * 16 + 16
    assert "accelerate launches inner.py: it runs in the program's own process" in estimate.assumptions


MAPPED = """
import torch
from datasets import load_dataset
data = load_dataset("wikitext", split="train").map(lambda row: {"n": [len(row["text"])]}, num_proc=4)
data = data.filter(lambda row: True, num_proc=2)
assert len(data["n"]) == len(data)
model = torch.nn.Linear(8, 8).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_rows_are_mapped_without_other_processes(estimated: Callable[..., Estimate]) -> None:
    """As scripts with ``--preprocessing_num_workers`` ask; with the package installed or played."""
    assert estimated(MAPPED).repeats
