"""Targets become callables. Runs in the child process, because it imports the user's file."""

import ast
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, assert_never

from memplan.errors import UsageError
from memplan.job.candidates import model_in
from memplan.job.inputs import batch_of
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, HubTarget, JobSpec, ModuleTarget, PresetTarget
from memplan.job.usercode import display, guarded, user_code

if TYPE_CHECKING:
    import torch
