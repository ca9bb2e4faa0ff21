"""The catalog of presets: its facts against published parameter counts, and the inputs that its models accept."""

import json
import subprocess
import sys
import types

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memplan.cli.presets import presets as presets_command
from memplan.errors import UsageError
from memplan.job.huggingface import TASKS
from memplan.job.presets import catalog, find_preset, list_presets, preset_source
from memplan.job.presets.catalog import Preset
from memplan.job.presets.source import _named
from memplan.job.spec import JobSpec, PresetTarget
from memplan.report.presets import presets_json, presets_text, short_count

NAMES = [preset.name for preset in list_presets()]
# One of each construction path: tied and untied heads, grouped heads, mixtures of experts, convolutions, UNet.
COUNTED = ["gpt2", "llama-3.2-1b", "qwen3-30b-a3b", "flan-t5-small", "resnet-50", "bert-base", "sd-1.5-unet"]
# Figures that pages publish rounded to three digits, so that an exact comparison would be with a rounding.
ROUNDED = {"bert-base", "bert-large", "dit-xl-2", "all-minilm-l6-v2", "bert-tiny",
           "deberta-v3-small", "deberta-v3-base", "deberta-v3-large"}  # fmt: skip


def spec(name: str, **options: object) -> JobSpec:
    return JobSpec(target=PresetTarget(name=name), **options)


def parameters(name: str) -> int:
    """Build on the meta device, outside of memplan's own way of building, and count."""
    pytest.importorskip(find_preset(name).library)
    with torch.device("meta"):
        model = preset_source(name, spec=spec(name)).model()
    return sum(parameter.numel() for parameter in model.parameters())


def assert_count(name: str) -> None:
    published = find_preset(name).parameters
    if name in ROUNDED:
        assert parameters(name) == pytest.approx(published, rel=0.005)
    else:
        assert parameters(name) == published


@pytest.mark.parametrize("name", COUNTED)
def test_the_model_has_the_published_number_of_parameters(name: str) -> None:
    assert_count(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_the_published_number_of_parameters(name: str) -> None:
    assert_count(name)


def test_the_catalog_is_whole() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert len(NAMES) >= 55
    assert {preset.task for preset in list_presets()} <= set(TASKS)
    for preset in list_presets():
        assert preset.name == preset.name.lower()
        assert preset.source.startswith("https://")
        assert (preset.config_class is None) == (preset.library == "diffusers")
        assert preset.max_seq_len is None or preset.seq_len <= preset.max_seq_len


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen2.5-7b", "mixtral-8x7b", "gemma-2b", "phi-2", "gpt2-xl",
     "pythia-12b", "bert-base", "roberta-base", "t5-base", "vit-b-16", "resnet-50", "sdxl-unet", "dit-xl-2",
     "whisper-large-v3"],
)  # fmt: skip
def test_every_architecture_that_the_readme_promises_is_there(name: str) -> None:
    assert find_preset(name).name == name


def test_names_are_read_in_any_case() -> None:
    assert find_preset("Llama-3.1-8B").name == "llama-3.1-8b"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError) as raised:
        find_preset("lama-3.1-8b")
    assert "llama-3.1-8b" in raised.value.hint


def test_listing_imports_neither_torch_nor_the_libraries() -> None:
    code = (
        "import sys; from memplan.job.presets import list_presets; from memplan.report.presets import presets_text;"
        "import memplan.cli.presets; presets_text(list_presets());"
        "print(sorted({'torch', 'transformers', 'diffusers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError) as raised:
        preset_source("gpt2", spec=spec("gpt2"))
    assert raised.value.hint == 'pip install "memplan[hf]"'


def test_a_library_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.SimpleNamespace(__version__="4.50.0")
    monkeypatch.setitem(sys.modules, "transformers", old)
    with pytest.raises(UsageError, match=r"transformers 4\.50\.0 does not know GPT2LMHeadModel"):
        _named(find_preset("gpt2"), "GPT2LMHeadModel", "preset:gpt2")


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(UsageError, match="1024 tokens, not 1025"):
        preset_source("gpt2", spec=spec("gpt2", seq_len=1025))


def test_loading_leaves_the_catalog_as_it_is() -> None:
    pytest.importorskip("transformers")
    before = repr(find_preset("clip-vit-b-32").config)
    preset_source("clip-vit-b-32", spec=spec("clip-vit-b-32"))
    assert repr(find_preset("clip-vit-b-32").config) == before


def test_a_null_in_the_published_configuration_reaches_the_model() -> None:
    pytest.importorskip("transformers")
    config = find_preset("mistral-7b-v0.3").config
    assert config["sliding_window"] is None


# The slowest of a kind are left to the slow tests: one member of each task runs in every test run.
STEPS = ["pythia-70m", "distilbert-base", "t5-small", "resnet-18", "vit-b-16", "whisper-tiny"]
SLOW_STEPS = [
    *("sdxl-unet", "sd-1.5-unet", "dit-xl-2", "swin-tiny", "convnext-tiny", "llama-3.1-405b", "bart-base"),
    *("modernbert-base", "gemma-2-2b", "falcon-7b", "bloom-560m", "opt-350m", "phi-3-mini", "flan-t5-small"),
    *("clip-vit-b-32", "bert-base", "qwen3-0.6b", "mistral-7b-v0.1"),
]


def run_step(name: str) -> None:
    """Forward, loss and backward under fake tensors: every trainable parameter must be reached by the loss."""
    pytest.importorskip(find_preset(name).library)
    source = preset_source(name, spec=spec(name, batch_size=2))
    with FakeTensorMode():
        model = source.model()
        assert model.training
        assert all(isinstance(parameter, FakeTensor) for parameter in model.parameters())
        batch = source.batch(2, min(source.default_seq_len, 64) if source.default_seq_len else None)
        output = model(**batch)
        (source.loss(output, batch) if source.loss else output.loss).backward()
    unreached = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    assert unreached == []


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_runs_on_fake_tensors(name: str) -> None:
    run_step(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_STEPS)
def test_a_training_step_of_every_family_runs_on_fake_tensors(name: str) -> None:
    run_step(name)


# transformers asks how the experts lie, for torch up to 2.10.
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b"])
def test_a_training_step_of_a_mixture_of_experts_runs_in_bfloat16(name: str) -> None:
    # torch's fake kernel of the grouped product refuses other dtypes (torch/_meta_registrations.py, 2.13).
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        run_step(name)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.slow
def test_a_denoisers_loss_takes_the_noise_half_of_twice_the_channels() -> None:
    pytest.importorskip("diffusers")
    source = preset_source("dit-xl-2", spec=spec("dit-xl-2"))
    with FakeTensorMode():
        batch = source.batch(2, None)
        output = source.model()(**batch)
        assert output.sample.shape[1] == 2 * batch["hidden_states"].shape[1]
        assert source.loss(output, batch).shape == ()


def test_inference_goes_without_labels_and_in_evaluation_mode() -> None:
    pytest.importorskip("transformers")
    source = preset_source("pythia-70m", spec=spec("pythia-70m", mode="inference"))
    with FakeTensorMode():
        model, batch = source.model(), source.batch(3, 16)
        assert not model.training
        assert set(batch) == {"input_ids"}
        assert model(**batch).logits.shape == (3, 16, 50304)


@pytest.mark.parametrize(("name", "vocabulary"), [("t5-small", 32_128), ("whisper-tiny", 51_865)])
def test_the_decoder_of_an_encoder_decoder_gets_tokens_in_inference(name: str, vocabulary: int) -> None:
    pytest.importorskip("transformers")
    source = preset_source(name, spec=spec(name, mode="inference"))
    with FakeTensorMode():
        batch = source.batch(2, 16)
        assert "labels" not in batch
        assert source.model()(**batch).logits.shape == (2, 16, vocabulary)
    assert "decoder_input_ids" not in preset_source(name, spec=spec(name, mode="generate")).batch(2, 16)


def test_the_default_length_is_the_presets() -> None:
    pytest.importorskip("transformers")
    source = preset_source("gpt2", spec=spec("gpt2"))
    assert source.default_seq_len == 1024
    assert source.batch(2, None)["input_ids"].shape == (2, 1024)


@pytest.mark.parametrize(("number", "text"), [
    (124_439_808, "124 M"), (999_885_952, "1.00 B"), (8_030_261_248, "8.03 B"), (405_853_388_800, "406 B"),
    (99_960_000, "100 M"), (9_996_000_000, "10.0 B"), (12, "12"),
])  # fmt: skip
def test_counts_have_three_digits(number: int, text: str) -> None:
    assert short_count(number) == text


def test_the_table_fits_80_columns_and_shows_every_preset() -> None:
    lines = [line.plain for line in presets_text(list_presets())]
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines} >= set(NAMES)


def test_the_json_holds_every_preset() -> None:
    rows = json.loads(presets_json(list_presets()))["presets"]
    assert [row["name"] for row in rows] == NAMES
    assert {row["name"]: row["parameters"] for row in rows} == {p.name: p.parameters for p in list_presets()}


def test_shared_configuration_keys_reach_each_preset() -> None:
    own = {"parameters": 1, "source": "https://s", "config": {"b": 2}, "unset": ["c"]}
    shared = {"family": "f", "library": "transformers", "task": "causal-lm", "model_class": "M", "config": {"a": 1}}
    facts = {**shared, "presets": {"x": own}}
    (preset,) = catalog._family(facts)
    assert isinstance(preset, Preset)
    assert preset.config == {"a": 1, "b": 2, "c": None}


def test_the_command_prints_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    presets_command(as_json=True)
    assert len(json.loads(capsys.readouterr().out)["presets"]) == len(NAMES)
    presets_command(as_json=False)
    assert "llama-3.1-8b" in capsys.readouterr().out
