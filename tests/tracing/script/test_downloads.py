"""Files that programs download by themselves."""

import io
import tarfile
from collections.abc import Callable

import pytest

from memplan.errors import EstimateError
from memplan.measure.records import Estimate
from memplan.tracing.script.downloads import content

TRAINS = """
import torch
from net import build
model = build().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.randn({rows}, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHAKESPEARE = "https://example.org/tinyshakespeare/input.txt"
WAYS = {
    "urlopen": f"import urllib.request\ntext = urllib.request.urlopen('{SHAKESPEARE}').read().decode()\n",
    "urlretrieve": f"""
import os, urllib.request
os.makedirs("data", exist_ok=True)
if not os.path.exists("data/input.txt"):
    urllib.request.urlretrieve("{SHAKESPEARE}", "data/input.txt")
assert os.path.isfile("data/input.txt") and os.path.isdir("data")
with open("data/input.txt") as file:
    text = file.read()
""",
    "requests": f"import requests\ntext = requests.get('{SHAKESPEARE}').text\n",
    "a stream": f"""
import requests
with requests.get("{SHAKESPEARE}", stream=True) as answer:
    answer.raise_for_status()
    text = b"".join(answer.iter_content(8192)).decode()
""",
}


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_a_known_text_has_its_length_and_characters(read: str, estimated: Callable[..., Estimate]) -> None:
    check = "assert len(text) == 1_115_394 and len(set(text)) == 65\n"
    estimate = estimated(read + check + TRAINS.format(rows=32))
    assert any("input.txt is not downloaded" in sentence for sentence in estimate.assumptions)


def test_files_of_the_web_by_fsspec_are_known_too(estimated: Callable[..., Estimate]) -> None:
    pytest.importorskip("aiohttp")
    read = f"""
import fsspec
with fsspec.open("{SHAKESPEARE}", "r") as file:
    text = file.read()
assert len(text) == 1_115_394
"""
    assert estimated(read + TRAINS.format(rows=32)).repeats


def test_any_other_text_has_words_and_characters(estimated: Callable[..., Estimate]) -> None:
    read = """
import re, requests
text = requests.get("https://example.org/the-verdict.txt").text
assert len(set(text)) == 65
words = re.findall("[a-zA-Z]+", text)
assert (len(words), len(set(words))) == (200_000, 10_000)
"""
    estimate = estimated(read + TRAINS.format(rows=32))
    assert any("the-verdict.txt is not downloaded: text of 200,000 words" in said for said in estimate.assumptions)


def test_an_archive_is_unpacked_and_read_by_numpy(estimated: Callable[..., Estimate]) -> None:
    read = """
import io, os, tarfile, urllib.request
import numpy as np
data = urllib.request.urlopen("https://linqs-data.soe.ucsc.edu/public/lbc/cora.tgz").read()
tarfile.open(fileobj=io.BytesIO(data), mode="r:gz").extractall()
cites = np.genfromtxt("cora/cora.cites", dtype=np.int32)
assert cites.shape == (5429, 2) and os.path.exists("cora/cora.content")
"""
    assert estimated(read + TRAINS.format(rows=32)).repeats


@pytest.mark.parametrize("read", ["urllib.request.urlopen(url)", "requests.get(url)"])
def test_an_unknown_one_is_refused_with_what_to_do(read: str, estimated: Callable[..., Estimate]) -> None:
    text = f"import urllib.request, requests\nurl = 'https://example.org/my.csv'\n{read}\n"
    with pytest.raises(EstimateError, match=r"downloading https://example.org/my.csv .*download it once") as caught:
        estimated(text)
    assert caught.value.where == "train.py:3"


def test_stand_ins_have_the_shapes_that_are_published() -> None:
    def words(url: str) -> list[str]:
        return content(url, lambda _: None).decode().replace("\n", " <eos> ").split()

    for part, tokens in (("train", 2_088_628), ("valid", 217_646), ("test", 245_569)):
        text = words(f"https://example.org/wikitext-2/{part}.txt")
        assert (len(text), len(set(text))) == (tokens, 33_278)
    with tarfile.open(fileobj=io.BytesIO(content("https://example.org/cora.tgz", lambda _: None))) as archive:
        papers = archive.extractfile("cora/cora.content")
        assert papers is not None
        rows = [line.split(b"\t") for line in papers.read().splitlines()]
    assert (len(rows), len(rows[0]), len({row[-1] for row in rows})) == (2_708, 1_433 + 2, 7)
    assert len(content("https://example.org/iris.data", lambda _: None).splitlines()) == 150
