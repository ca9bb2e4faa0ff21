"""How a model is called on what ``batch`` returns, and which scalar is taken as the loss."""

from collections import OrderedDict, UserDict
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from memplan.errors import EstimateError, ExitCode
from memplan.job.defaults import caller, default_loss

ONE, TWO, LABEL = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(9.0)


class Echo(nn.Module):
    """Returns what it was called with."""

    def forward(self, first, second=None):
        return first, second


class Star(nn.Module):
    def forward(self, *items):
        return items


class Wrapper(nn.Module):
    """Passes anything on, as DDP does."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *items, **keywords):
        return self.module(*items, **keywords)


class KeywordOnly(nn.Module):
    def forward(self, first, *, second=0):
        return first, second


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize(
    ("model", "batch", "result"),
    [
        (Echo(), ONE, (ONE, None)),
        (Echo(), {"second": TWO, "first": ONE}, (ONE, TWO)),
        (Echo(), UserDict(first=ONE), (ONE, None)),
        (Echo(), (ONE,), (ONE, None)),
        (Echo(), (ONE, TWO, LABEL), (ONE, TWO)),
        (Echo(), [ONE, TWO, LABEL], (ONE, TWO)),
        (Echo(), Pair(ONE, TWO), (ONE, TWO)),
        (KeywordOnly(), (ONE, LABEL), (ONE, 0)),
        (Star(), (ONE, TWO, LABEL), (ONE, TWO, LABEL)),
        (Wrapper(Echo()), (ONE, TWO, LABEL), (ONE, TWO)),
        (Echo(), "text", ("text", None)),
    ],
)
def test_calls(model, batch, result):
    assert caller()(model, batch) == result


class Graph(nn.Module):
    def forward(self, x, edges, weight=None, size=None):
        return x, edges, weight, size


@pytest.mark.parametrize(
    ("model", "batch", "items", "result", "told"),
    [
        (Graph(), (1, 2, 3), (2,), (1, 2, None, None), ({"x": "batch[0]", "edges": "batch[1]"}, ("weight",))),
        (Graph(), (1, 2, 3), (-1,), (1, 2, None, None), ({"x": "batch[0]", "edges": "batch[1]"}, ("weight",))),
        # What comes behind an item of the loss would reach the wrong parameter.
        (Graph(), (1, 2, 3, 4), (2,), (1, 2, None, None), ({"x": "batch[0]", "edges": "batch[1]"}, ("weight", "size"))),
        # An item that comes before it is an input, and so is what the model cannot do without.
        (Graph(), (1, 2, 3, 4), (3,), (1, 2, 3, None),
         ({"x": "batch[0]", "edges": "batch[1]", "weight": "batch[2]"}, ("size",))),
        (Graph(), (1, 2), (0, 1), (1, 2, None, None), ({"x": "batch[0]", "edges": "batch[1]"}, ())),
        (Echo(), (1, 2), (slice(None),), (1, None), ({"first": "batch[0]"}, ("second",))),
        (Star(), [1, 2], (1,), (1,), ({"items[0]": "batch[0]"}, ("items[1]",))),
        (Wrapper(Echo()), (1, 2), (1,), (1, None), ({"first": "batch[0]"}, ("second",))),
        (Echo(), (1, 2, 3), (2,), (1, 2), ({"first": "batch[0]", "second": "batch[1]"}, ())),
    ],
)  # fmt: skip
def test_what_the_loss_reads_reaches_no_optional_parameter(model, batch, items, result, told):
    heard = []
    assert caller(items, lambda *words: heard.append(words))(model, batch) == result
    assert heard == [told]


@pytest.mark.parametrize(
    "output",
    [
        ONE,
        ONE.reshape(1, 1),
        (ONE, torch.ones(3)),
        [ONE],
        {"loss": ONE, "logits": torch.ones(3)},
        SimpleNamespace(loss=ONE, logits=torch.ones(3)),
        OrderedDict(loss=ONE),
    ],
)
def test_losses(output):
    assert default_loss(output, None).item() == 1


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (torch.ones(4, 10), "a tensor of shape [4, 10] (float32)"),
        (torch.tensor(3), "a tensor of shape [] (int64)"),
        ((torch.ones(3), ONE), "a tuple"),
        ((), "a tuple"),
        ({"logits": ONE}, "a dict"),
        (SimpleNamespace(loss=None), "a SimpleNamespace"),
        (None, "a NoneType"),
    ],
)
def test_no_loss(output, what):
    with pytest.raises(EstimateError) as caught:
        default_loss(output, {"input_ids": ONE})
    assert what in caught.value.what
    assert "def loss(output, batch)" in (caught.value.hint or "")
    assert caught.value.exit_code == ExitCode.UNKNOWN


def test_missing_labels_are_named():
    with pytest.raises(EstimateError) as caught:
        default_loss(SimpleNamespace(loss=None), {"input_ids": ONE})
    assert "labels" in (caught.value.hint or "")
