"""Programs that need packages of their time, which a folder of its own holds, are run in a process of their own."""

import importlib
import os
import sys
from typing import Any

from memplan.job.isolate import run_isolated
from published.case import Prediction

TIMEOUT = 1800.0
"""Seconds for one run."""


def predict_with(variable: str, module: str, function: str, *arguments: Any) -> Prediction:
    """Call a function that runs a program on fake tensors, where the packages of a folder are found first.

    Args:
        variable: Environment variable that names the folder.
        module: Holds the function; it and what it needs are imported in the other process alone.
        function: Its name.
        arguments: Its arguments.

    Returns:
        What the function returns.

    Raises:
        RuntimeError: No folder is named.
        EstimateError: The run failed.
    """
    folder = os.environ.get(variable)
    if folder is None:
        raise RuntimeError(
            f"{variable} names no folder of packages; {module.rpartition('.')[0]}'s docstring says which"
        )
    return run_isolated(_predict_here, folder, module, function, arguments, timeout=TIMEOUT)


def _predict_here(folder: str, module: str, function: str, arguments: tuple[Any, ...]) -> Prediction:
    sys.path.insert(0, folder)
    made: Prediction = getattr(importlib.import_module(module), function)(*arguments)
    return made
