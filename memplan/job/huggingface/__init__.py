"""Models that transformers and diffusers define, built from configurations: no weight is ever read."""

from memplan.job.huggingface.build import require, source_of
from memplan.job.huggingface.hub import hub_source
from memplan.job.huggingface.tasks import TASKS, Task

__all__ = ["TASKS", "Task", "hub_source", "require", "source_of"]
