"""Batches and forward steps of Megatron-LM's ``pretrain_gpt.py`` and ``pretrain_t5.py``."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from published.megatron.recipes import Recipe

Batches = Iterator[dict[str, torch.Tensor]]
LossFunction = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]


def gpt_batches(recipe: Recipe) -> Batches:
    """What the loader hands over, on the host."""
    batch, length = recipe.size.micro_batch, recipe.size.length
    while True:
        ids = torch.zeros(batch, length, dtype=torch.long)
        made = {"tokens": ids, "labels": ids.clone(), "loss_mask": torch.zeros(batch, length)}
        if recipe.attention_mask:
            made["attention_mask"] = torch.zeros(batch, 1, length, length, dtype=torch.bool)
        yield made | {"position_ids": ids.clone()}


def gpt_step(batches: Batches, model: Any) -> tuple[torch.Tensor, LossFunction]:
    """``get_batch``, of which context parallel ranks take their part, and ``forward_step``.

    The last of several stages has no use for the tokens, and what is neither the model's first nor its last part has
    none for the batch.
    """
    from megatron.core.utils import get_batch_on_this_cp_rank

    part = model.module.module
    if not (part.pre_process or part.post_process):
        return model(None, None, None, labels=None, loss_mask=None), partial(_loss, torch.zeros(1))
    given = {name: tensor.cuda(non_blocking=True) for name, tensor in next(batches).items()}
    given = get_batch_on_this_cp_rank(given)
    tokens, positions = (given.pop(name) if part.pre_process else None for name in ("tokens", "position_ids"))
    mask, labels = given.get("attention_mask"), given["labels"]
    output = model(tokens, positions, mask, labels=labels, loss_mask=given["loss_mask"])
    return output, partial(_loss, given["loss_mask"])


def t5_batches(recipe: Recipe) -> Batches:
    """What the loader hands over, on the host."""
    lengths = {"text_enc": 512, "text_dec": 128, "labels": 128, "loss_mask": 128, "enc_mask": 512, "dec_mask": 128}
    while True:
        yield {name: torch.zeros(recipe.size.micro_batch, length, dtype=torch.long) for name, length in lengths.items()}


def t5_step(recipe: Recipe, batches: Batches, model: Any) -> tuple[torch.Tensor, LossFunction]:
    """``get_batch``, whose parts are views of one tensor (tensor_parallel/data.py ``broadcast_data``)."""
    from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset

    host = next(batches)
    flat = torch.cat([each.view(-1) for each in host.values()]).cuda()
    parts = flat.split([each.numel() for each in host.values()])
    given = {name: part.view(tensor.shape) for (name, tensor), part in zip(host.items(), parts, strict=True)}
    loss_mask = given["loss_mask"].float()
    encoder, decoder = given["enc_mask"] < 0.5, given["dec_mask"] < 0.5
    encoder, decoder, both = T5MaskedWordPieceDataset.config_attention_mask(
        given["text_enc"], given["text_dec"], encoder, decoder, not recipe.engine
    )
    output = model(given["text_enc"], given["text_dec"], encoder, decoder, both, lm_labels=given["labels"])
    return output, partial(_loss, loss_mask)


def _loss(loss_mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """pretrain_gpt.py ``loss_func``."""
    losses, mask = output.view(-1).float(), loss_mask.view(-1).float()
    loss = torch.sum(losses * mask)
    number = mask.sum().clone().detach().to(torch.int)
    return loss, number, {"lm loss": torch.cat([loss.clone().detach().view(1), number.view(1)])}
