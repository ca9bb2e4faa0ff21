"""``--loss-chunks``: the same loss and the same gradients, and no logits as a whole."""

from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.tracing.chunked_loss import chunk_loss
from memplan.tracing.records import DeviceTraits, Trace
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

transformers = library("transformers")

CUDA = DeviceTraits(kind="cuda")
VOCABULARY, TOKENS, BATCH = 300, 16, 2


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            use_cache=False,
        )
    )


def batch(_: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    return {"input_ids": ids, "labels": ids.clone()}


def traced(**options: Any) -> Trace:
    return trace(source(llama, batch), CUDA, **options)


@pytest.mark.parametrize("chunks", [2, 5, 32])
@pytest.mark.parametrize("ignored", [0, 3])
def test_loss_and_gradients_are_those_of_transformers(chunks: int, ignored: int) -> None:
    model, data = llama(), batch(0)
    data["labels"][:, :ignored] = -100
    expected = model(**data).loss
    expected.backward()
    gradients = [each.grad for each in model.parameters()]
    model.zero_grad()
    chunk_loss(model, chunks)
    found = model(**data)["loss"]
    found.backward()
    torch.testing.assert_close(found, expected)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_logits_are_never_there_as_a_whole() -> None:
    chunks = 4
    whole = 4 * BATCH * TOKENS * VOCABULARY
    assert any(each.nbytes == whole for each in traced().storages)
    sizes = {each.nbytes for each in traced(loss_chunks=chunks).storages if each.role == "intermediate"}
    assert whole not in sizes
    assert whole // chunks in sizes


def test_it_is_said() -> None:
    assert any("over 4 parts of the tokens" in said for said in traced(loss_chunks=4).assumptions)


def test_it_goes_with_adapters_and_checkpoints() -> None:
    pytest.importorskip("peft")
    from memplan.job.adapters import Lora  # noqa: PLC0415

    found = traced(loss_chunks=4, lora=Lora(rank=2, targets=("q_proj",)), checkpoint="full")
    assert found.model.trainable_parameters == 2 * 2 * 2 * 16


def test_a_loss_that_wants_logits_is_refused() -> None:
    with pytest.raises(UsageError, match="take the logits"):
        trace(source(llama, batch, loss=lambda output, _: output.logits.sum()), CUDA, loss_chunks=2)


def test_pipeline_stages_are_cut_of_another_forward() -> None:
    with pytest.raises(UsageError, match="pipeline stages"):
        trace(source(llama, batch), CUDA, loss_chunks=2, parallel=Parallel(pipeline=2))


def test_a_step_of_the_targets_own_finds_the_loss() -> None:
    def step(model: Any, optimizer: Any, data: Any) -> None:
        model(**data).loss.backward()
        optimizer.step()

    found = trace(source(llama, batch, train_step=step), CUDA, loss_chunks=4)
    assert not [each for each in found.storages if each.nbytes == 4 * BATCH * TOKENS * VOCABULARY]


def test_other_models_are_refused() -> None:
    job = source(lambda: nn.Linear(4, 4), lambda size: torch.zeros(size, 4))
    with pytest.raises(UsageError, match="no causal language model"):
        trace(job, CUDA, loss_chunks=2)
