"""Well-known architectures as configuration facts, built on transformers' and diffusers' own model code."""

from memplan.job.presets.catalog import Preset, find_preset, list_presets
from memplan.job.presets.source import preset_source

__all__ = ["Preset", "find_preset", "list_presets", "preset_source"]
