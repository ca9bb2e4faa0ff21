"""Quantised models and processors of the hub in scripts that nobody has changed."""

from collections.abc import Callable

import pytest

from memplan.job.presets.pipelines import parts_of
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


PIPELINE = """
import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from transformers import CLIPTextModel, CLIPTokenizer

name = "CompVis/stable-diffusion-v1-4"
scheduler = DDPMScheduler.from_pretrained(name, subfolder="scheduler")
tokenizer = CLIPTokenizer.from_pretrained(name, subfolder="tokenizer")
encoder = CLIPTextModel.from_pretrained(name, subfolder="text_encoder").to("cuda", torch.float16)
vae = AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema", torch_dtype=torch.float16).to("cuda")
unet = UNet2DConditionModel.from_pretrained(name, subfolder="unet", revision=None)
assert scheduler.config.prediction_type == "epsilon" and vae.config.scaling_factor == 0.18215
parts = {part: sum(each.numel() for each in part_of.parameters())
         for part, part_of in {"encoder": encoder, "vae": vae, "unet": unet}.items()}
assert parts == {"encoder": 123_060_480, "vae": 83_653_863, "unet": 859_520_964}, parts
head = torch.nn.Linear(768, 10).cuda()
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
ids = tokenizer(["a photo of a dog"] * 2, max_length=tokenizer.model_max_length, padding="max_length").input_ids
assert len(ids[0]) == 77
for step in range(10):
    with torch.no_grad():
        hidden = encoder(torch.tensor(ids, device="cuda"))[0]
    head(hidden.float()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_parts_of_pipelines_are_built_from_their_configurations(estimated: Callable[..., Estimate]) -> None:
    pytest.importorskip("diffusers")
    estimate = estimated(PIPELINE)
    assert any("unet of CompVis/stable-diffusion-v1-4 is built" in sentence for sentence in estimate.assumptions)
    # The encoder and the autoencoder lie on the GPU in half precision; the denoiser stays on the host.
    assert estimate.peak.requested_bytes > 2 * (123_060_480 + 83_653_863)
    assert estimate.peak.requested_bytes < 2 * 859_520_964


def test_a_pipeline_that_nobody_knows_is_refused() -> None:
    assert parts_of("somebody/unheard-of") == {}
    assert set(parts_of("stabilityai/stable-diffusion-xl-base-1.0")) >= {"text_encoder_2", "unet", "vae"}
