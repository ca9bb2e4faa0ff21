"""``memplan formula``: the textbook's figures for a shape, at once and without torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from memplan.cli import check, console, groups, options
from memplan.cli.options import option
from memplan.errors import ExitCode, UsageError
from memplan.plan.formula import CHECKPOINTS, OPTIMIZERS, PRECISIONS, FormulaSetup, ModelShape, rows

if TYPE_CHECKING:
    from memplan.job.presets import Preset
    from memplan.job.spec import Precision
    from memplan.plan.formula import FormulaCheckpoint, FormulaOptimizer, FormulaPrecision

MODEL, RUN = "Model", "Run"
ATTENTIONS = ("flash", "standard")
CHOICES = {"precision": PRECISIONS, "optimizer": OPTIMIZERS, "checkpoint": CHECKPOINTS, "attention": ATTENTIONS}
LIKE = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "vocab": ("vocab_size",),
}
"""Option of a shape → what configurations call it."""
OF_ESTIMATE = {"mixed": "bf16-mixed"}
"""Precision of a formula → of ``estimate``, where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """The model; counts as typed."""

    preset: Annotated[
        str | None, option("preset", MODEL, "Take the shape of an architecture ('memplan presets').", metavar="NAME")
    ] = None
    params: Annotated[str | None, option("params", MODEL, "Parameters: 7e9 or 7B.", metavar="N")] = None
    layers: Annotated[str | None, option("layers", MODEL, "Layers.", metavar="N")] = None
    hidden: Annotated[str | None, option("hidden", MODEL, "Width of the residual stream.", metavar="N")] = None
    heads: Annotated[str | None, option("heads", MODEL, "Query heads.", metavar="N")] = None
    kv_heads: Annotated[
        str | None, option("kv_heads", MODEL, "Heads of keys and values.", metavar="N", default="as --heads")
    ] = None
    vocab: Annotated[str | None, option("vocab", MODEL, "Size of the vocabulary: bounds logits.", metavar="N")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaRunOptions:
    """The run; counts as typed."""

    batch_size: Annotated[str, option("batch_size", RUN, "Samples at once.", metavar="N", default="1")] = "1"
    seq_len: Annotated[str | None, option("seq_len", RUN, "Tokens of each.", metavar="N", default="the preset's")] = (
        None
    )
    precision: Annotated[
        str,
        option(
            "precision", RUN, "Of weights and gradients:", metavar="NAME", default="mixed", choices=list(PRECISIONS)
        ),
    ] = "mixed"
    optimizer: Annotated[
        str, option("optimizer", RUN, "Its states:", metavar="NAME", default="adamw", choices=list(OPTIMIZERS))
    ] = "adamw"
    checkpoint: Annotated[
        str, option("checkpoint", RUN, "What is made again:", metavar="NAME", default="none", choices=list(CHECKPOINTS))
    ] = "none"
    attention: Annotated[
        str, option("attention", RUN, "Kernel:", metavar="NAME", default="flash", choices=list(ATTENTIONS))
    ] = "flash"
    zero: Annotated[int, option("zero", RUN, "Stage of ZeRO, 0 to 3.", metavar="N", default="0")] = 0
    gpus: Annotated[int, option("gpus", RUN, "Ranks that share.", metavar="N", default="1")] = 1
    top_gradients: Annotated[
        float | None,
        option(
            "top_gradients",
            RUN,
            "Share of gradients that ranks send: 0.01.",
            metavar="SHARE",
            default="all",
        ),
    ] = None
    inference: Annotated[bool, option("inference", RUN, "No training: weights and a cache of --seq-len tokens.")] = (
        False
    )
    traced: Annotated[bool, option("traced", RUN, "Also trace the preset, on an h100-80g.")] = False


@groups.spread
def formula(*, model: ShapeOptions, run: FormulaRunOptions, as_json: options.JsonAlone = False) -> None:
    """Print the textbook's figures for a shape, without a trace."""
    problems = check.Problems()
    preset = problems.of(_preset, model.preset)
    problems.raise_if_any()
    shape = problems.of(_shape, model, preset)
    problems.add(*_wrong(run))
    setup = problems.of(_setup, run, preset)
    if run.traced and (preset is None or run.gpus > 1 or run.checkpoint == "selective" or run.top_gradients):
        problems.add("--traced takes a --preset on one GPU, without --checkpoint selective and --top-gradients")
    problems.raise_if_any()
    assert shape is not None and setup is not None  # noqa: S101, PT018 - else there was a problem.
    from memplan.report.formula import render, render_json

    found = rows(shape, setup)
    traced = _traced(preset, setup) if run.traced and preset is not None else None
    if as_json:
        console.write_plain(render_json(found, traced) + "\n")
    else:
        console.write_lines(render(found, traced, width=console.terminal_width()))
    raise typer.Exit(ExitCode.DONE)


def _preset(name: str | None) -> "Preset | None":
    from memplan.job.presets import find_preset

    return None if name is None else find_preset(name.removeprefix("preset:"))


def _shape(model: ShapeOptions, preset: "Preset | None") -> ModelShape:
    typed = {name: _count(name, getattr(model, name)) for name in ("params", *LIKE)}
    of_preset = {} if preset is None else {"params": preset.parameters, **_of_configuration(preset.config)}
    known = of_preset | {name: value for name, value in typed.items() if value is not None}
    if missing := [name for name in ("params", "layers", "hidden", "heads") if name not in known]:
        flags = ", ".join(options.flag(name) for name in missing)
        raise UsageError(f"the shape is not whole without {flags}", hint="or name one: --preset llama-3.1-8b")
    return ModelShape(
        parameters=known["params"],
        layers=known["layers"],
        hidden=known["hidden"],
        heads=known["heads"],
        kv_heads=known.get("kv_heads", known["heads"]),
        vocabulary=known.get("vocab"),
    )


def _of_configuration(config: Mapping[str, object]) -> dict[str, int]:
    found = {name: next((config[key] for key in keys if key in config), None) for name, keys in LIKE.items()}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _setup(run: FormulaRunOptions, preset: "Preset | None") -> FormulaSetup:
    seq_len = _count("seq_len", run.seq_len) or (preset.seq_len if preset is not None else None)
    if seq_len is None:
        raise UsageError("--seq-len is missing: tokens of each sample")
    return FormulaSetup(
        batch_size=_count("batch_size", run.batch_size) or 1,
        seq_len=seq_len,
        precision=cast("FormulaPrecision", run.precision),  # What is wrong is a problem of its own.
        optimizer=cast("FormulaOptimizer", run.optimizer),
        checkpoint=cast("FormulaCheckpoint", run.checkpoint),
        flash=run.attention == "flash",
        zero=run.zero,
        gpus=run.gpus,
        top_gradients=run.top_gradients,
        train=not run.inference,
    )


def _count(name: str, text: str | None) -> int | None:
    """Read ``7e9``, ``7B``, ``124M`` or ``4096``."""
    if text is None:
        return None
    factor = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}.get(text[-1:].lower())
    try:
        count = float(text[:-1] if factor else text) * (factor or 1)
    except ValueError:
        count = 0.0
    if not 1 <= count < 1e18:
        raise UsageError(f"{options.flag(name)}: '{text}' is no count", hint="write for example 7e9, 7B or 4096")
    return round(count)


def _wrong(run: FormulaRunOptions) -> Iterator[str]:
    for name, known in CHOICES.items():
        if getattr(run, name) not in known:
            yield f"{options.flag(name)} must be one of {', '.join(known)}, not '{getattr(run, name)}'"
    if run.zero not in range(4):
        yield f"--zero must be 0 to 3, not {run.zero}"
    if run.top_gradients is not None and not 0 < run.top_gradients <= 1:
        yield f"--top-gradients must be above 0 and at most 1, not {run.top_gradients:g}"
    if run.top_gradients is not None and (run.zero >= 2 or run.inference):
        yield "--top-gradients is for whole gradients: not with --zero 2, --zero 3 or --inference"
    if run.gpus < 1:
        yield f"--gpus must be at least 1, not {run.gpus}"


def _traced(preset: "Preset", setup: FormulaSetup) -> Mapping[str, int]:
    """Return what a trace of the same setup says."""
    from memplan.hardware.catalog import load_profile
    from memplan.job.spec import JobSpec, PresetTarget
    from memplan.measure.compose import estimate

    spec = JobSpec(
        target=PresetTarget(name=preset.name),
        mode="train" if setup.train else "inference",
        batch_size=setup.batch_size,
        seq_len=setup.seq_len,
        precision=cast("Precision", OF_ESTIMATE.get(setup.precision, setup.precision)),
        optimizer=setup.optimizer,
        checkpoint=setup.checkpoint,
        attention="auto" if setup.flash else "math",
    )
    (found,) = estimate(spec, [load_profile(options.DEFAULT_GPU)])
    parts = {name: size for name, size in found.estimate.breakdown.items() if size}
    return {**parts, f"peak on {options.DEFAULT_GPU}": found.estimate.peak.device_bytes}
