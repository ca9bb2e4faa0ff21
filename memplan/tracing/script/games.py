"""Games that a program plays: data say when an episode ends, so it may be as short or as long as the game allows."""

import warnings
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.tracing.decisions import Decisions


class Games:
    """Ends the episodes of gymnasium's environments.

    Args:
        decisions: Says how what nobody knows of the data turns out.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._is_said = False

    def time_limits(self, module: ModuleType, stack: ExitStack, _: object) -> None:
        """Let episodes end when the game does, or for the ends of the interval at once and as late as may be."""
        step = module.TimeLimit.step

        def ended(limit: Any, action: Any) -> tuple[Any, ...]:
            with warnings.catch_warnings():
                # A game that goes on beyond its end says that this is not its rule.
                warnings.simplefilter("ignore", UserWarning)
                observation, reward, terminated, truncated, facts = step(limit, action)
            if self._decisions.way == "most":
                terminated = False
            elif self._decisions.way == "other":
                truncated = True
            if terminated or truncated:
                self._note(limit._elapsed_steps, limit._max_episode_steps)
            return observation, reward, terminated, truncated, facts

        stack.enter_context(mock.patch.object(module.TimeLimit, "step", ended))

    def _note(self, steps: int, most: int) -> None:
        self._decisions.account.ways |= dict.fromkeys(("other", "most"))
        if not self._is_said:
            self._is_said = True
            self._decisions.account.said[
                f"data end an episode: here after {steps} steps, in the interval after 1 to {most}"
            ] = None
