"""What there is to plan in models that have no rows of equal blocks, or something beside them."""

from collections.abc import Callable

import pytest
from torch import nn

from memplan.runtime.checkpoint.blocks import repeated_blocks
from memplan.runtime.checkpoint.plannable import existing_modules, plannable_blocks


class Net(nn.Module):
    """Has modules, and never runs."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self) -> None: ...


def pair(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), *more, nn.Tanh())


def row(count: int) -> nn.ModuleList:
    return nn.ModuleList(Net(inner=nn.Linear(2, 2)) for _ in range(count))


def dlrm() -> nn.Module:
    tables = nn.ModuleList(nn.EmbeddingBag(2, 2) for _ in range(3))
    return Net(tables=tables, bottom=pair(nn.ReLU(inplace=True)), top=pair())


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Net(down=row(2), middle=pair(), up=row(2), head=nn.Linear(2, 2)),
         ("down.0", "down.1", "middle", "up.0", "up.1")),
        # What learns nothing needs no gradient of its own.
        (lambda: Net(layers=row(2), rotary=Net(wave=nn.Identity())), ("layers.0", "layers.1")),
        (lambda: Net(words=nn.Embedding(2, 2), rnn=nn.LSTM(2, 2), head=nn.Linear(2, 2)), ("words", "rnn", "head")),
        (lambda: Net(ears=pair(), rnn=nn.GRU(2, 2), head=nn.Linear(2, 2)), ("ears", "rnn")),
        (dlrm, ("bottom", "top")),
        (lambda: Net(generator=Net(main=pair()), discriminator=Net(main=pair())), ("generator", "discriminator")),
        # A wrapper around all is opened; what changes its input in place cannot run again.
        (lambda: Net(main=pair(nn.ReLU(inplace=True), nn.ReLU())), ("main.0", "main.2", "main.3")),
        (pair, ("0", "1")),
        (Net, ()),
    ],
    ids=["middle", "no weights", "lstm", "ctc", "dlrm", "gan", "wrapped", "mlp", "nothing"],
)  # fmt: skip
def test_modules_that_stand_alone_are_planned(make: Callable[[], nn.Module], names: tuple[str, ...]) -> None:
    assert plannable_blocks(make()) == names


def test_rows_of_blocks_alone_are_what_checkpointing_in_full_takes() -> None:
    model = Net(encoder=row(3), decoder=nn.Sequential(*row(2)), head=nn.Linear(2, 2))
    assert plannable_blocks(model) == repeated_blocks(model) == (
        "encoder.0", "encoder.1", "encoder.2", "decoder.0", "decoder.1"
    )  # fmt: skip


def test_the_hint_names_modules_that_exist() -> None:
    model = Net(layers=nn.ModuleList([pair()]))
    assert existing_modules(model) == "name some: --blocks NAME, of layers.0, layers.0.0, layers.0.1"
