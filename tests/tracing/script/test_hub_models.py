"""Quantised models and processors of the hub in scripts that nobody has changed."""

from collections.abc import Callable

import pytest

from memplan.measure.records import Estimate

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

TINY = "num_hidden_layers=2, hidden_size=256, num_attention_heads=4, intermediate_size=512, vocab_size=1000"
QLORA = f"""
import warnings
warnings.simplefilter("ignore")
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                         bnb_4bit_compute_dtype=torch.bfloat16)
config = AutoConfig.from_pretrained("meta-llama/Llama-2-7b-hf", {TINY}, num_key_value_heads=4)
model = AutoModelForCausalLM.from_pretrained(
    "meta-llama/Llama-2-7b-hf", config=config, quantization_config=how, device_map="auto")
assert model.is_loaded_in_4bit and model.is_quantized
assert type(model.model.layers[0].mlp.up_proj).__name__ == "Linear4bit"
assert type(model.lm_head).__name__ == "Linear"
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"]))
rows = [{{"input_ids": torch.ones(64, dtype=torch.long), "labels": torch.ones(64, dtype=torch.long)}}] * 1000
arguments = TrainingArguments("out", per_device_train_batch_size=2, report_to="none", bf16=True)
Trainer(model, arguments, train_dataset=rows).train()
"""


def test_quantised_weights_are_held_as_bitsandbytes_does(estimated: Callable[..., Estimate]) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft")
    quantised = estimated(QLORA)
    assert quantised.repeats
    linear = 2 * (4 * 256 * 256 + 3 * 256 * 512)
    kept = 2 * 1000 * 256 * 4  # Embedding and head, in fp32 after k-bit preparation.
    assert linear / 2 + kept < quantised.breakdown["parameter"] < linear * 0.6 + kept + 200_000


PICTURES = """
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, ViTConfig

name = "google/vit-base-patch16-224-in21k"
processor = AutoImageProcessor.from_pretrained(name)
pixels = processor(Image.new("RGB", (500, 375)), return_tensors="pt")["pixel_values"]
assert pixels.shape == (1, 3, 224, 224)
model = AutoModelForImageClassification.from_pretrained(name, num_labels=5, num_hidden_layers=1).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    batch = pixels.repeat(4, 1, 1, 1).to("cuda")
    model(pixel_values=batch, labels=torch.zeros(4, dtype=torch.long, device="cuda")).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MADE = """
import numpy as np
from transformers import AutoFeatureExtractor, AutoProcessor, CLIPProcessor, WhisperProcessor
from PIL import Image

sound = np.zeros(16000, dtype=np.float32)
assert AutoFeatureExtractor.from_pretrained("openai/whisper-tiny")(sound, sampling_rate=16000)["input_features"].shape
for kind in (AutoProcessor, WhisperProcessor):
    made = kind.from_pretrained("openai/whisper-tiny")
    assert np.asarray(made(sound, sampling_rate=16000)["input_features"]).shape == (1, 80, 3000)
for kind in (AutoProcessor, CLIPProcessor):
    made = kind.from_pretrained("openai/clip-vit-base-patch32")
    both = made(text=["a cat"], images=Image.new("RGB", (640, 480)), return_tensors="pt")
    assert both["pixel_values"].shape == (1, 3, 224, 224) and both["input_ids"].shape[0] == 1
"""


@pytest.mark.parametrize("text", [PICTURES, MADE + PICTURES], ids=["pictures", "sound and both"])
def test_processors_have_the_defaults_of_their_classes(text: str, estimated: Callable[..., Estimate]) -> None:
    pytest.importorskip("torchvision")
    estimate = estimated(text)
    assert estimate.repeats
    assert any("ViTImageProcessor" in sentence for sentence in estimate.assumptions)
