"""``hf:`` targets: which head and inputs a configuration gives, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memplan.errors import UsageError
from memplan.job.huggingface import hub_source
from memplan.job.huggingface.materialise import build
from memplan.job.load import load_source
from memplan.job.spec import HubTarget, JobSpec
from tests.support.libraries import library

transformers = library("transformers")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128, "hidden_size": 32,
    "torch_dtype": "bfloat16",
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}  # fmt: skip
BERT = {
    "model_type": "bert", "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {
    "model_type": "t5", "vocab_size": 128, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8, "num_channels": 1,
}  # fmt: skip


def written(folder: Path, config: dict) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def spec(location: str, **options: object) -> JobSpec:
    return JobSpec(target=HubTarget(location=location), **options)


def load(folder: Path, config: dict, **options: object):
    location = written(folder, config)
    return hub_source(location, spec=spec(location, **options))


def step(source, batch_size: int = 2, seq_len: int | None = 16):
    with FakeTensorMode():
        model = source.model()
        output = model(**source.batch(batch_size, seq_len))
        output.loss.backward()
    return model, output


@pytest.mark.parametrize(("config", "head", "inputs"), [
    (LLAMA, "LlamaForCausalLM", {"input_ids", "labels"}),
    (BERT | {"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM", {"input_ids", "attention_mask", "labels"}),
    (BERT | {"architectures": ["BertForSequenceClassification"], "num_labels": 3}, "BertForSequenceClassification",
     {"input_ids", "attention_mask", "labels"}),
    (T5, "T5ForConditionalGeneration", {"input_ids", "attention_mask", "labels"}),
    (VIT, "ViTForImageClassification", {"pixel_values", "labels"}),
])  # fmt: skip
def test_head_and_inputs_follow_the_configuration(tmp_path, config, head, inputs) -> None:
    source = load(tmp_path, config)
    assert set(source.batch(2, 16)) == inputs
    model, output = step(source)
    assert type(model).__name__ == head
    assert output.loss.shape == ()
    assert all(value.grad is not None for value in model.parameters())


def test_a_file_is_read_as_its_folder_is(tmp_path) -> None:
    location = f"{written(tmp_path, LLAMA)}/config.json"
    model, _output = step(hub_source(location, spec=spec(location)))
    assert type(model).__name__ == "LlamaForCausalLM"


def test_a_base_model_gets_its_first_trainable_head(tmp_path) -> None:
    source = load(tmp_path, LLAMA | {"architectures": ["LlamaModel"]})
    assert type(step(source)[0]).__name__ == "LlamaForCausalLM"
    assert "LlamaForCausalLM" in source.provenance["model"]


def test_the_weights_dtype_is_left_to_the_precision_option(tmp_path) -> None:
    model, _output = step(load(tmp_path, LLAMA))
    assert {value.dtype for value in model.parameters()} == {torch.float32}


def test_that_transformers_loads_another_type_is_said_where_nobody_gave_one(tmp_path) -> None:
    [said] = load(tmp_path, LLAMA).assumptions
    assert "in bfloat16" in said
    assert "--precision bf16" in said
    assert not load(tmp_path, LLAMA, provenance={"precision": "--precision"}).assumptions
    assert not load(tmp_path, BERT).assumptions


def test_image_sizes_come_from_the_configuration(tmp_path) -> None:
    assert load(tmp_path, VIT).batch(3, None)["pixel_values"].shape == (3, 1, 32, 32)


def test_the_default_length_stays_within_the_positions(tmp_path) -> None:
    assert load(tmp_path, LLAMA).default_seq_len == 64
    assert load(tmp_path, LLAMA | {"max_position_embeddings": 131072}).default_seq_len == 2048


def test_tied_and_untied_heads(tmp_path) -> None:
    tied, _output = step(load(tmp_path, T5))
    untied, _output = step(load(tmp_path, T5 | {"tie_word_embeddings": False}))
    assert tied.lm_head.weight is tied.shared.weight
    assert untied.lm_head.weight is not untied.shared.weight
    assert untied.encoder.embed_tokens.weight is untied.shared.weight


def test_training_returns_no_cache_and_inference_does(tmp_path) -> None:
    _model, output = step(load(tmp_path, LLAMA, checkpoint="full"))
    assert output.past_key_values is None
    source = load(tmp_path, LLAMA, mode="inference")
    assert source.model()(**source.batch(1, 8)).past_key_values is not None
    assert "configuration" in source.provenance["use_cache"]


def test_full_checkpointing_is_the_librarys_own(tmp_path) -> None:
    checkpointed, _output = step(load(tmp_path, LLAMA, checkpoint="full"))
    plain, _output = step(load(tmp_path, LLAMA))
    assert [layer.gradient_checkpointing for layer in checkpointed.model.layers] == [True, True]
    assert [layer.gradient_checkpointing for layer in plain.model.layers] == [False, False]


def test_an_architecture_without_checkpointing_says_so(tmp_path) -> None:
    config = {"model_type": "resnet", "depths": [1, 1], "hidden_sizes": [8, 8], "embedding_size": 8}
    source = load(tmp_path, config, checkpoint="full")
    with pytest.raises(UsageError, match="does not support checkpointing"):
        source.model()


@pytest.mark.parametrize(
    ("location", "hint"), [("no/such/folder", "config.json"), ("meta-llama/Llama-3.1-8B", "--allow-network")]
)
def test_what_is_not_on_disk_is_refused_without_network(location, hint, monkeypatch) -> None:
    def connect(*_arguments: object, **_options: object) -> None:
        pytest.fail("the network was asked")

    monkeypatch.setattr("socket.socket.connect", connect)
    with pytest.raises(UsageError) as raised:
        hub_source(location, spec=spec(location))
    assert hint in raised.value.hint


def test_a_well_known_name_without_network_is_built_as_its_preset(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    job = JobSpec(target=HubTarget(location="openai-community/gpt2"))
    source = load_source(job)
    assert source.default_seq_len == 1024
    assert source.provenance["model"].startswith("hf:openai-community/gpt2 is not on this disk: preset:gpt2")
    with pytest.raises(UsageError, match="there is no configuration"):
        load_source(replace(job, target=HubTarget(location="nobody/has-this")))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": "nonesuch"}'])
def test_a_broken_configuration_is_one_clear_error(tmp_path, text) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match="cannot read the configuration"):
        hub_source(str(tmp_path), spec=spec(str(tmp_path)))


def test_a_type_without_a_trainable_head_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="no head that could be trained"):
        load(tmp_path, {"model_type": "sam", "architectures": ["SamModel"]})


def test_code_beside_the_configuration_runs_only_when_asked(tmp_path) -> None:
    (tmp_path / "configuration_mine.py").write_text("raise SystemExit('code ran')\n")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.MineConfig"}}
    with pytest.raises(UsageError, match="cannot read the configuration"):
        load(tmp_path, config)


class Tied(torch.nn.Module):
    """Everything that a module can hold a tensor by."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.second.weight.requires_grad_(requires_grad=False)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int32), persistent=False)
        self.plain = self.seen
        self.rates = torch.linspace(0, 1, 3, device="cpu").tolist()
        torch.nn.init.trunc_normal_(self.first.weight)


def test_building_under_fake_tensors_keeps_what_the_module_is() -> None:
    real = Tied()
    with FakeTensorMode():
        fake = build(Tied)
    for name, value in real.state_dict(keep_vars=True).items():
        twin = fake.state_dict(keep_vars=True)[name]
        assert isinstance(twin, FakeTensor)
        assert (twin.shape, twin.dtype, twin.stride(), twin.device) == (
            value.shape,
            value.dtype,
            value.stride(),
            value.device,
        )
        assert (type(twin) is type(value) or isinstance(twin, torch.nn.Parameter), twin.requires_grad) == (
            True,
            value.requires_grad,
        )
    assert fake.second.weight is fake.first.weight
    assert fake.plain is fake.seen
    assert "seen" not in fake.state_dict()
    assert fake.rates == real.rates


def test_building_without_fake_tensors_initialises() -> None:
    assert build(Tied).first.bias.abs().sum() > 0
