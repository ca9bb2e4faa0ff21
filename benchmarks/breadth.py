"""Which transformers architectures memplan can estimate: a table per task, every failure named.

    python benchmarks/breadth.py [--task causal-lm] [--only NAME] [--jobs 2] [--timeout 60] [--save results/breadth.txt]

Each architecture is built from a tiny configuration (the shrinker below sets the size keys that it knows), and a
training step with AdamW in fp32 is traced for an H100 and replayed, in a process of its own: what ``memplan estimate``
does. A failure is *clear* if it would end the command with exit code 3 and a message that names op, line or remedy.
"""

import argparse
import importlib.metadata
import logging
import multiprocessing
import platform
import re
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.huggingface import source_of
from memplan.job.huggingface.tasks import Task
from memplan.job.spec import JobSpec, PresetTarget
from memplan.job.usercode import user_code
from memplan.lifetime.build import build_lifetimes
from memplan.measure.answer import compose
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job

MAPPINGS: Mapping[Task, str] = {
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "sequence-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "image-classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
}
GOAL = 0.95
GPU = "h100-80g"
LONGEST = 300
"""Characters of a message in the list of failures."""
BATCH, TOKENS = 2, 16

# Size keys of configurations → a small value. Ratios between them are kept consistent: 4 heads of 16 make 64.
LAYERS: Mapping[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
}
WIDTHS: Mapping[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim"), 64),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads", "num_kv_heads"), 4
    ),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), 8),
    "word_embed_proj_dim": 64,
    "moe_intermediate_size": 32,
    "head_dim": 16,
    "qk_rope_head_dim": 16,
}
# What published configurations always say and some classes leave at None.
UNSAID: Mapping[str, int] = {
    "num_experts_per_tok": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 64,
}
ROPE: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
# What a published configuration of that architecture says and a training step cannot do without.
SAID: Mapping[str, Mapping[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "dbrx": {"attn_config": {"rope_theta": 500_000.0, "kv_n_heads": 4, "clip_qkv": 8.0}},
    "lfm2_moe": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "zamba": {"num_hidden_layers": 12},
    "xmod": {"default_language": "en_XX"},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
}
# Tried in order until one runs: some architectures derive further sizes from those that the shrinker knows.
LEVELS: Mapping[str, Mapping[str, int]] = {"tiny": {**LAYERS, **WIDTHS}, "shallow": LAYERS, "default": {}}


Ending = Literal["estimate", "clear", "package", "other"]
"""An estimate; exit 3 and a message that names op, line or remedy; exit 3 for a missing package; anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one architecture ended."""

    task: Task
    """The list of heads that it is in."""
    model_type: str
    """transformers' name of the architecture."""
    level: str
    """How far the configuration was shrunk."""
    ended: Ending
    """What came of it."""
    detail: str
    """The message's parts on one line; empty for an estimate."""
    peak_bytes: int
    """Predicted device peak; 0 without an estimate."""
    seconds: float
    """Wall time of its process."""


def shrink(config_class: Any, small: Mapping[str, int]) -> Any:
    """A configuration whose size keys, nested ones included, are no larger than the given values."""
    values = config_class().to_dict()
    unsaid = {key: value for key, value in UNSAID.items() if key in values and values[key] is None}
    said = SAID.get(config_class.model_type, {})
    config = config_class(**{**unsaid, **_smaller({**values, **unsaid}, small), **said})
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        # Published configurations all have one; some classes have no default.
        config.decoder_start_token_id = 0
    for part in (config, config.get_text_config(decoder=True)):
        if getattr(part, "pad_token_id", None) is None:
            # Classifiers of several sequences need one, and published configurations of classifiers have it.
            part.pad_token_id = 0
    return config


def _smaller(values: Mapping[str, Any], small: Mapping[str, int]) -> dict[str, Any]:
    nested = {
        key: _smaller(value, small)
        for key, value in values.items()
        if isinstance(value, dict) and "model_type" in value
    }
    # A configuration's own type key tells composite models what to build.
    nested = {key: value | {"model_type": values[key]["model_type"]} for key, value in nested.items()}
    return nested | {key: min(size, values[key]) for key, size in small.items() if isinstance(values.get(key), int)}


def run_one(task: Task, model_type: str, sender: Any) -> None:
    """Run one architecture in this process and send its outcome; the least shrunk failure is the one told."""
    warnings.simplefilter("ignore")
    logging.disable()
    outcome: dict[str, Any] = {}
    for level, small in LEVELS.items():
        outcome = {"level": level, **attempt(task, model_type, small)}
        sender.send(outcome)
        if outcome["ended"] == "estimate":
            break
    sender.send(None)


def attempt(task: Task, model_type: str, small: Mapping[str, int]) -> dict[str, Any]:
    """Build one architecture and estimate its training step."""
    try:
        return {"ended": "estimate", "detail": "", "peak_bytes": peak_of(task, model_type, small)}
    except Exception as error:  # noqa: BLE001 - whatever an architecture raises is a row of the table.
        return {"ended": ending(error), "detail": one_line(error), "peak_bytes": 0}


def peak_of(task: Task, model_type: str, small: Mapping[str, int]) -> int:
    """Predicted device peak of a tiny training step, in bytes."""
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    names = getattr(modeling_auto, MAPPINGS[task])[model_type]
    model_class = getattr(transformers, names if isinstance(names, str) else names[0])
    profile = load_profile(GPU)
    spec = JobSpec(target=PresetTarget(name=model_type), batch_size=BATCH, seq_len=TOKENS, optimizer="adamw")
    with user_code("the configuration"):
        config = shrink(CONFIG_MAPPING[model_type], small)
    source = source_of(model_class, config, task, spec=spec)
    lifetimes = build_lifetimes(trace_job(lambda: source, spec, DeviceTraits.of(profile)))
    return compose(spec, profile, play_on_device(lifetimes, profile)).peak.device_bytes


def ending(error: Exception) -> Ending:
    """Which kind of failure this is for a user of the command."""
    if "ImportError" in str(error) or "ModuleNotFoundError" in str(error) or isinstance(error, ImportError):
        return "package"
    names_op = re.search(r"aten[.:]+\w+", str(error)) is not None
    is_clear = isinstance(error, EstimateError) and (names_op or error.where is not None or error.hint is not None)
    return "clear" if is_clear else "other"


def one_line(error: Exception) -> str:
    """The class of an error and all its parts, without line breaks."""
    # Where packages are installed is of no interest.
    said = re.sub(r"\S*/site-packages/", "", " ".join(str(error).split())) or "no message"
    return f"{type(error).__name__}: {said[:LONGEST]}"


def guarded(context: Any, task: Task, model_type: str, timeout: float) -> Outcome:
    """Run one architecture in a forked process that is ended after ``timeout`` seconds."""
    started = time.perf_counter()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_one, args=(task, model_type, sender))
    process.start()
    sender.close()
    told = last_told(receiver, timeout)
    process.kill()
    process.join()
    outcome = Outcome(task=task, model_type=model_type, seconds=time.perf_counter() - started, **told)
    print(f"{task:24} {model_type:28} {outcome.ended:9} {outcome.level:8} {outcome.seconds:5.1f} s", flush=True)
    return outcome


def last_told(receiver: Any, timeout: float) -> dict[str, Any]:
    """The outcome of the last configuration that came to an end in time."""
    deadline = time.monotonic() + timeout
    told = {"level": "", "ended": "other", "detail": f"longer than {timeout:.0f} s", "peak_bytes": 0}
    while receiver.poll(max(0.0, deadline - time.monotonic())):
        try:
            outcome = receiver.recv()
        except EOFError:
            return told | {"ended": "other", "detail": f"the process ended without a word; before: {told['detail']}"}
        if outcome is None:
            return told
        told = outcome
    return told


def main() -> int:
    """Run the benchmark; the exit status says whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=MAPPINGS, action="append")
    parser.add_argument("--only", action="append")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    cases = chosen(options.task, options.only)
    # The server imports the libraries once; every architecture then runs in a fork of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["memplan.tracing.run", "memplan.measure.local", "transformers.modeling_utils"])
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda case: guarded(context, case[0], case[1], options.timeout), cases))
    text = "\n".join([*header(), "", *table(outcomes), "", *failures(outcomes)])
    print(f"\n{text}")
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(f"{text}\n")
    return 0 if share(outcomes) >= GOAL else 1


def chosen(tasks: list[Task] | None, only: list[str] | None) -> list[tuple[Task, str]]:
    """The (task, architecture) pairs to run: transformers' own lists."""
    from transformers.models.auto import modeling_auto

    return [
        (task, name)
        for task in tasks or MAPPINGS
        for name in getattr(modeling_auto, MAPPINGS[task])
        if only is None or name in only
    ]


def header() -> list[str]:
    """What ran, on what."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
    machine = f"{platform.system()} {platform.machine()}"
    return [
        f"Tiny configurations, batch {BATCH} x {TOKENS} tokens, fp32, AdamW, traced for {GPU}.",
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {machine}, Python {platform.python_version()}, {versions}",
    ]


def table(outcomes: list[Outcome]) -> list[str]:
    """One row per task and one for all."""
    kinds = get_args(Ending)
    rows = [f"{'task':26}{'architectures':>14}" + "".join(f"{kind:>10}" for kind in kinds) + f"{'share':>9}"]
    for task in (*MAPPINGS, "all"):
        mine = [outcome for outcome in outcomes if task in (outcome.task, "all")]
        if mine:
            counts = [sum(outcome.ended == kind for outcome in mine) for kind in kinds]
            rows.append(f"{task:26}{len(mine):14}" + "".join(f"{count:10}" for count in counts) + f"{share(mine):9.1%}")
    return rows


def failures(outcomes: list[Outcome]) -> list[str]:
    """One line per architecture without an estimate."""
    failed = [outcome for outcome in outcomes if outcome.ended != "estimate"]
    return [f"{each.ended:9} {each.task:24} {each.model_type:24} {each.detail}" for each in failed]


def share(outcomes: list[Outcome]) -> float:
    """Share of architectures with an estimate."""
    return sum(outcome.ended == "estimate" for outcome in outcomes) / max(1, len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
