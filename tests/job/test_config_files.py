"""``--config``: configuration files as frameworks and their users write them, read key by key."""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.cli import check
from memplan.cli.app import main
from memplan.cli.groups import JobOptions
from memplan.cli.job import job_spec
from memplan.errors import UsageError
from memplan.job.adapters import Lora
from memplan.job.config_files.read import FileSettings, read_config
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import write_setup
from memplan.job.spec import JobSpec
from memplan.job.zero import Zero
from tests.emit.setups import setup

# As in DeepSpeed's and transformers' documentation, comments included: DeepSpeed reads its file as HJSON.
ZERO_3_OF_THE_TRAINER = """
{
    # the trainer fills these in
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": true},
        "offload_param": {"device": "cpu", "pin_memory": true},
        "overlap_comm": true,
        "contiguous_gradients": true,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto"
}
"""
ZERO_1 = """
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.5,
  "fp16": {"enabled": true},
  "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e7, "offload_optimizer": {"device": "nvme"}},
  "data_types": {"grad_accum_dtype": "fp32"}
}
"""
FSDP1_OF_ACCELERATE = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_offload_params: true
  fsdp_sharding_strategy: SHARD_GRAD_OP
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
FSDP2_OF_ACCELERATE = """
distributed_type: FSDP
mixed_precision: no
num_processes: 16
dynamo_backend: INDUCTOR
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
  fsdp_activation_checkpointing: true
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
"""
DEEPSPEED_OF_ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: fp16
num_processes: 4
deepspeed_config:
  gradient_accumulation_steps: 2
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 2
"""
QLORA_OF_AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: [gate_proj, q_proj]
sequence_len: 2048
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: paged_adamw_8bit
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
"""
FSDP_OF_AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
bf16: true
micro_batch_size: 1
sequence_len: 8192
optimizer: adamw_torch_fused
max_grad_norm: 0
fsdp_version: 2
dp_shard_size: 4
tensor_parallel_size: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
  activation_checkpointing: true
"""
TRAINING_ARGUMENTS = """
{
  "output_dir": "out", "per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "bf16": true,
  "optim": "adamw_torch", "max_grad_norm": 0.3, "gradient_checkpointing": true, "torch_compile": true
}
"""
AOT_EAGER_OF_TRAINER = """
{"per_device_train_batch_size": 2, "torch_compile": true, "torch_compile_backend": "aot_eager"}
"""
OLD_FSDP_OF_TRAINER = """
{"per_device_train_batch_size": 2, "fsdp": "shard_grad_op auto_wrap offload", "fsdp_config": {"fsdp_version": 1}}
"""

FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "zero3_trainer.json": (
        ZERO_3_OF_THE_TRAINER,
        {
            "optimizer": "adamw",
            "zero": Zero(stage=3, offload_optimizer="cpu", offload_param="cpu", overlap_comm=True),
            "parallel": parse_parallel("zero3=1"),
        },
    ),
    "zero1.json": (
        ZERO_1,
        {
            "batch_size": 4,
            "grad_accum": 2,
            "clip_grad_norm": 0.5,
            "precision": "fp16-mixed",
            "zero": Zero(
                stage=1, reduce_bucket_size=50_000_000, offload_optimizer="nvme", gradient_accumulation_dtype="fp32"
            ),
            "parallel": parse_parallel("zero1=8"),
        },
    ),
    "fsdp1.yaml": (
        FSDP1_OF_ACCELERATE,
        {"precision": "bf16-mixed", "parallel": parse_parallel("fsdp1=8,reshard=no,offload=yes")},
    ),
    "fsdp2.yaml": (
        FSDP2_OF_ACCELERATE,
        {
            "precision": "fp32",
            "compile": "inductor",
            "checkpoint": "full",
            "parallel": parse_parallel("hsdp=2x4,tp=2,reshard=no"),
        },
    ),
    "deepspeed.yaml": (
        DEEPSPEED_OF_ACCELERATE,
        {
            "precision": "fp16-mixed",
            "grad_accum": 2,
            "clip_grad_norm": 1.0,
            "zero": Zero(stage=2, offload_optimizer="cpu"),
            "parallel": parse_parallel("zero2=4"),
        },
    ),
    "multi.yaml": (
        "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: 'no'\n",
        {"precision": "fp32", "parallel": parse_parallel("ddp=8")},
    ),
    "alone.yaml": ("distributed_type: NO\nmixed_precision: fp16\n", {"precision": "fp16-mixed"}),
    "qlora.yml": (
        QLORA_OF_AXOLOTL,
        {
            "batch_size": 2,
            "grad_accum": 4,
            "seq_len": 2048,
            "clip_grad_norm": 1.0,
            "optimizer": "paged-adamw-8bit",
            "precision": "bf16",
            "checkpoint": "full",
            "quantize": "nf4-double",
            "lora": Lora(rank=32, alpha=16, dropout=0.05, targets=("gate_proj", "q_proj")),
        },
    ),
    "fsdp.yml": (
        FSDP_OF_AXOLOTL,
        {
            "batch_size": 1,
            "seq_len": 8192,
            "clip_grad_norm": None,
            "optimizer": "adamw",
            "optimizer_impl": "fused",
            "precision": "bf16-mixed",
            "checkpoint": "full",
            "parallel": parse_parallel("fsdp=4,tp=2"),
        },
    ),
    "args.json": (
        TRAINING_ARGUMENTS,
        {
            "batch_size": 16,
            "grad_accum": 2,
            "clip_grad_norm": 0.3,
            "optimizer": "adamw",
            "precision": "bf16-mixed",
            "checkpoint": "full",
            "compile": "inductor",
        },
    ),
    "aot_eager_args.json": (
        AOT_EAGER_OF_TRAINER,
        {
            "batch_size": 2,
            "clip_grad_norm": 1.0,
            "optimizer": "adamw",
            "optimizer_impl": "fused",
            "compile": "aot_eager",
        },
    ),
    "old_args.json": (
        OLD_FSDP_OF_TRAINER,
        {
            "batch_size": 2,
            "clip_grad_norm": 1.0,
            "optimizer": "adamw",
            "optimizer_impl": "fused",
            "parallel": parse_parallel("fsdp1=1,reshard=no,offload=yes"),
        },
    ),
}


def read(text: str, folder: Path, name: str = "ds_config.json") -> FileSettings:
    (folder / name).write_text(text, encoding="utf-8")
    return read_config(folder / name)


@pytest.mark.parametrize("name", FILES)
def test_a_file_as_people_write_it(name: str, tmp_path: Path) -> None:
    text, expected = FILES[name]
    assert read(text, tmp_path, name).values == expected


@pytest.mark.parametrize("name", FILES)
def test_every_value_has_the_place_that_it_came_from(name: str, tmp_path: Path) -> None:
    text, expected = FILES[name]
    found = read(text, tmp_path, name)
    assert found.provenance.keys() == expected.keys()
    for place in found.provenance.values():
        file, _, key = place.partition(":")
        assert file == name
        assert " " not in key  # A report shows places alone, without words.
        if not key.endswith("(default)"):
            assert key.partition("(")[0].rpartition(".")[2] in text


@pytest.mark.parametrize(
    ("name", "missing"),
    [("zero3_trainer.json", "--parallel zero3=N"), ("old_args.json", "--parallel fsdp=N"), ("zero1.json", None)],
)
def test_ranks_that_a_file_does_not_know_have_to_be_typed(name: str, missing: str | None, tmp_path: Path) -> None:
    lacks = read(FILES[name][0], tmp_path, name).lacks
    assert ("parallel" in lacks) == (missing is not None)
    assert missing is None or missing in lacks["parallel"]


NOTED = {
    '{"zero_optimization": {"stage": 2, "cpu_offload": true}}': "cpu_offload is deprecated, read as offload_optimizer",
    '{"zero_optimization": true}': "zero_optimization: true is deprecated, read as stage 1",
    '{"zero_optimization": {"stage": 0}}': "without ZeRO",
    '{"zero_optimization": {"stage": 3, "zero_quantized_weights": true}}': "changes memory and is not read",
    '{"zero_optimization": {"stage": 2}, "optimizer": {"type": "OneBitAdam"}}': "onebitadam is not known here",
    '{"bf16": true, "fsdp": "full_shard"}': "deprecated, read as fsdp: true",
    '{"optim": "galore_adamw"}': "optim galore_adamw is not known here",
    '{"gradient_checkpointing": true}': "deprecated, read as activation_checkpointing",
    "{base_model: a, gradient_checkpointing: offload}": "nothing is offloaded",
    "{base_model: a, fsdp: [full_shard]}": "fsdp is deprecated",
    "{base_model: a, adapter: llama-adapter}": "is not read",
    "{distributed_type: MEGATRON_LM}": "distributed_type megatron_lm is not read",
    "{distributed_type: FSDP, fsdp_config: {fsdp_sharding_strategy: NO_SHARD}}": "shares nothing",
    "{distributed_type: 'NO', mixed_precision: fp8}": "mixed_precision fp8 is not read",
}


@pytest.mark.parametrize("text", NOTED)
def test_what_is_understood_otherwise_is_told(text: str, tmp_path: Path) -> None:
    notes = read(text, tmp_path).notes
    assert any(NOTED[text] in note and note.startswith("ds_config.json: ") for note in notes), notes


def test_deprecated_offload_counts(tmp_path: Path) -> None:
    text = '{"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_param": false}}'
    assert read(text, tmp_path).values["zero"] == Zero(stage=3, offload_optimizer="cpu")


@pytest.mark.parametrize(
    "text", ['{"gradient_clipping": 0.0, "train_batch_size": 1}', '{"max_grad_norm": 0, "optim": "sgd"}']
)
def test_a_norm_of_zero_does_not_clip(text: str, tmp_path: Path) -> None:
    found = read(text, tmp_path)
    assert (found.values["clip_grad_norm"], "clip_grad_norm" in found.provenance) == (None, True)


WRONG = {
    '{"zero_optimization": {"stage": 4}}': "zero_optimization.stage: expected one of 0, 1, 2, 3, found 4",
    '{"train_micro_batch_size_per_gpu": "many", "gradient_accumulation_steps": 0.5}': "steps: expected",
    '{"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}': "no multiple",
    '{"zero_optimization": {"stage": 2, "overlap_comm": "perhaps"}}': "overlap_comm: expected true or false",
    "{base_model: a, micro_batch_size: [1]}": "micro_batch_size: expected a whole number",
    "{base_model: a, deepspeed: nowhere.json}": "deepspeed: ",
    '{"fsdp": true, "fsdp_config": "nowhere.json"}': "fsdp_config: ",
    '{"unknown": 1}': "is no configuration that memplan knows",
    "[1]": "holds no keys and values",
    "{": "neither JSON nor YAML",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read(text, tmp_path)
    assert WRONG[text] in raised.value.what
    assert "ds_config.json" in raised.value.what


def test_everything_that_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"batch_size.*stage"):
        read('{"train_micro_batch_size_per_gpu": -1, "zero_optimization": {"stage": "x"}}', tmp_path)


@pytest.mark.parametrize("place", ["deepspeed", "accelerate"])
def test_a_file_of_deepspeed_that_another_file_names_counts(place: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "zero.json").write_text(ZERO_1)
    outer = '{"per_device_train_batch_size": 4, "optim": "sgd", "deepspeed": "conf/zero.json"}'
    if place == "accelerate":
        outer = (
            "{distributed_type: DEEPSPEED, num_processes: 8, deepspeed_config: {deepspeed_config_file: conf/zero.json}}"
        )
    found = read(outer, tmp_path, "outer.yaml")
    assert found.values["parallel"] == parse_parallel("zero1=8")
    assert found.provenance["precision"] == "zero.json:fp16.enabled"


def test_accelerate_knows_the_ranks_that_deepspeed_s_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "zero.json").write_text(ZERO_3_OF_THE_TRAINER)
    outer = "{distributed_type: DEEPSPEED, num_processes: 16, deepspeed_config: {deepspeed_config_file: zero.json}}"
    found = read(outer, tmp_path, "outer.yaml")
    assert (found.values["parallel"], found.lacks) == (parse_parallel("zero3=16"), {})


bytes_of = st.integers(1, 10**9) | st.just("auto")
sections = st.fixed_dictionaries(
    {"stage": st.integers(1, 3)},
    optional={
        "overlap_comm": st.booleans() | st.just("auto"),
        "contiguous_gradients": st.booleans(),
        "reduce_scatter": st.booleans(),
        "round_robin_gradients": st.booleans(),
        "reduce_bucket_size": bytes_of,
        "allgather_bucket_size": bytes_of,
        "stage3_prefetch_bucket_size": bytes_of,
        "stage3_max_live_parameters": bytes_of,
        "stage3_max_reuse_distance": bytes_of,
        "stage3_param_persistence_threshold": bytes_of,
        "sub_group_size": bytes_of,
        "zero_hpz_partition_size": st.integers(1, 8),
        "offload_optimizer": st.fixed_dictionaries(
            {"device": st.sampled_from(["none", "cpu"])},
            optional={"pin_memory": st.booleans(), "buffer_count": st.integers(1, 9)},
        ),
    },
)


@settings(max_examples=40)
@given(section=sections)
def test_deepspeed_itself_reads_the_same(section: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("deepspeed", exc_type=ImportError)
        config = importlib.import_module("deepspeed.runtime.zero.config")
    theirs = config.DeepSpeedZeroConfig(**section)
    mine = read(json.dumps({"zero_optimization": section}), tmp_path_factory.mktemp("files")).values["zero"]
    names = [
        "stage", "contiguous_gradients", "reduce_scatter", "round_robin_gradients", "reduce_bucket_size",
        "allgather_bucket_size", "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance",
        "param_persistence_threshold", "sub_group_size",
    ]  # fmt: skip
    assert {name: getattr(mine, name) for name in names} == {name: getattr(theirs, name) for name in names}
    assert mine.hpz_partition_size == theirs.zero_hpz_partition_size
    # None stands for what DeepSpeed makes of the stage.
    assert mine.overlap_comm in (None, theirs.overlap_comm)
    if theirs.offload_optimizer is not None:
        # An enumeration where the file names a device, else the plain word of the default.
        assert theirs.offload_optimizer.device == mine.offload_optimizer
        assert mine.pin_memory == theirs.offload_optimizer.pin_memory
        assert mine.optimizer_buffer_count == theirs.offload_optimizer.buffer_count


def spec_of(folder: Path, *texts: str, **typed: Any) -> JobSpec:
    """What ``memplan estimate`` makes of files and typed options."""
    for number, text in enumerate(texts):
        (folder / f"{number}.conf").write_text(text)
    options = JobOptions(config=[folder / f"{number}.conf" for number in range(len(texts))], given=typed)
    problems = check.Problems()
    spec = job_spec("preset:gpt2", options, problems)
    problems.raise_if_any()
    return spec


def test_what_is_typed_wins(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ZERO_1, batch_size=3, parallel="zero3=16")
    assert (spec.batch_size, spec.grad_accum, spec.parallel) == (3, 2, parse_parallel("zero3=16"))
    assert spec.zero is not None
    assert (spec.zero.stage, spec.zero.reduce_bucket_size) == (3, 50_000_000)
    assert spec.provenance["batch_size"] == "--batch-size"
    assert spec.provenance["grad_accum"] == "0.conf:gradient_accumulation_steps"
    assert spec.provenance["seq_len"] == "default"


def test_settings_of_deepspeed_do_not_outlive_deepspeed(tmp_path: Path) -> None:
    assert spec_of(tmp_path, ZERO_1, parallel="fsdp=8").zero is None


def test_typed_ranks_are_enough(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not over how many ranks"):
        spec_of(tmp_path, ZERO_3_OF_THE_TRAINER)
    assert spec_of(tmp_path, ZERO_3_OF_THE_TRAINER, parallel="zero3=8").parallel.ranks == 8


def test_files_complete_each_other(tmp_path: Path) -> None:
    arguments = '{"per_device_train_batch_size": 2, "fsdp": true, "optim": "sgd"}'
    spec = spec_of(tmp_path, FSDP2_OF_ACCELERATE, arguments)
    assert (spec.batch_size, spec.optimizer) == (2, "sgd")
    assert spec.parallel == parse_parallel("hsdp=2x4,tp=2,reshard=no")


def test_a_setup_is_a_configuration_too(tmp_path: Path) -> None:
    made = setup(parallel=parse_parallel("zero2=8"), zero=Zero(stage=2, offload_optimizer="cpu"), grad_accum=3)
    spec = spec_of(tmp_path, write_setup(made), batch_size=9)
    assert (spec.batch_size, spec.grad_accum, spec.seq_len) == (9, 3, made.job.seq_len)
    assert (spec.zero, spec.parallel) == (made.job.zero, made.job.parallel)
    assert spec.provenance["grad_accum"] == "0.conf:job.grad_accum"


def test_wrong_files_and_wrong_options_are_told_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 4}}')
    words = ["--config", str(tmp_path / "ds.json"), "--config", str(tmp_path / "none.json"), "--batch-size", "0"]
    assert main(["estimate", "preset:gpt2", "--gpu", "h100-80g", *words]) == 2
    error = " ".join(capfd.readouterr().err.split())
    assert all(part in error for part in ("zero_optimization.stage", "none.json cannot be read", "--batch-size"))


def test_a_calibration_has_no_use_for_a_configuration(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--calibrate", "--config", str(tmp_path)]) == 2
    assert "--config would change nothing" in capfd.readouterr().err
