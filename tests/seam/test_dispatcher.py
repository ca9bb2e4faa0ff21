"""An op that torch no longer has, or runs another way, is an error and no figure."""

import pytest
import torch

from memplan.seam import dispatcher
from memplan.seam.dispatcher import fake_kernels, kernels
from memplan.seam.find import SeamError


def kernel(*_: object) -> torch.Tensor:
    return torch.zeros(())


def test_an_op_that_torch_lacks_is_an_error() -> None:
    with pytest.raises(SeamError, match=r"torch\.ops\.aten\.renamed_op"), kernels({"renamed_op": kernel}):
        pass
    with pytest.raises(SeamError, match="renamed_op"), fake_kernels({"renamed_op": kernel}):
        pass


def test_an_op_that_is_no_composite_is_not_replaced_as_one() -> None:
    with pytest.raises(SeamError, match="as a composite"), kernels({"mm": kernel}):
        pass


def test_an_op_younger_than_this_torch_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    young = dispatcher.of_every_release("young_op")
    monkeypatch.setitem(
        dispatcher.OPS, "young_op", type(young)(owner=young.owner, name=young.name, since="99.0", why="", source="")
    )
    with kernels({"young_op": kernel}):
        pass


def test_torch_has_its_own_kernels_back_afterwards() -> None:
    with kernels({"dropout": lambda tensor, *_: tensor * 0}):
        assert torch.dropout(torch.ones(2), 0.0, False).sum() == 0
    assert torch.dropout(torch.ones(2), 0.0, False).sum() == 2
