"""Runs a command and watches it, from outside and from within, until it ends. Torch-free.

What goes wrong in the watching is noted, and never reaches the command.
"""

import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from memplan.runtime.monitor import wire
from memplan.runtime.monitor.child import Wanted, started
from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.log import EndLine, Line, Log, OomLine, StartLine
from memplan.runtime.monitor.outcome import Ending, LevelChange, RunOutcome
from memplan.runtime.monitor.post_mortem import post_mortem
from memplan.runtime.monitor.processes import Merged, oom_kills
from memplan.runtime.monitor.records import Check
from memplan.runtime.monitor.sources import Sources
from memplan.runtime.monitor.tally import CheckTally

_LOG = logging.getLogger("memplan")
_FIRST = 0.2
"""Seconds to the first check: short runs are seen, too."""


class Watch:
    """One command, run and watched by ``run``; ``latest`` may be called from any thread.

    ``told`` gets each check, and the change of the level where there is one.
    """

    def __init__(self, wanted: Wanted, told: Callable[[Check, LevelChange | None], None] | None = None) -> None:
        self._wanted = wanted
        self._told = told
        self._latest: Check | None = None
        self._failed = False

    def latest(self) -> Check | None:
        """The last check; None before the first."""
        return self._latest

    def run(self) -> RunOutcome:
        """Run the command to its end, and say what came of it.

        Raises:
            UsageError: The command cannot be run, or the log not be written.
        """
        wanted, began = self._wanted, time.time()
        tally = CheckTally(started=began, window=wanted.thresholds.window)
        with ExitStack() as stack:
            log = stack.enter_context(closing(Log(wanted.log))) if wanted.log else None
            gpus = wanted.plan is None or wanted.plan.gpu != "cpu"
            sources = stack.enter_context(closing(Sources(inside=wanted.inside, gpus=gpus)))
            limits = wanted.thresholds
            _write(log, StartLine(began, wanted.command, wanted.plan, limits))
            killed, clock = oom_kills(), time.monotonic()
            with started(wanted, sources.address) as child:
                self._follow(child, sources, tally, log)
            seconds, words = time.monotonic() - clock, sources.last_words()
            self._safely(lambda: self._check(sources.last(), tally, log), tally)
            ending = _ending(child.returncode, seconds, words, oom_kills() - killed)
            for message in words:
                _write(log, OomLine(time.time(), message) if message.kind == "oom" else None)
            _write(log, EndLine(time.time(), ending))
        tally.notes += [*sources.notes, *_blind(words), *([log.problem] if log and log.problem else [])]
        return _outcome(wanted, ending, tally)

    def _follow(self, child: "subprocess.Popen[Any]", sources: Sources, tally: CheckTally, log: Log | None) -> None:
        due = time.monotonic() + min(_FIRST, self._wanted.interval)
        while True:
            try:
                child.wait(timeout=max(0.0, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                due = time.monotonic() + self._wanted.interval
                self._safely(lambda: self._check(sources.read(child.pid), tally, log), tally)
            else:
                return

    def _safely(self, check: Callable[[], None], tally: CheckTally) -> None:
        try:
            check()
        except Exception as error:  # noqa: BLE001 - the command goes on, and is waited for.
            if not self._failed:
                _LOG.exception("a check failed")
                tally.notes.append(f"checks failed: {type(error).__name__}: {error}")
            self._failed = True

    def _check(self, found: Merged | None, tally: CheckTally, log: Log | None) -> None:
        if found is None:
            return
        wanted = self._wanted
        check = judge(
            found.reading,
            tally.history,
            wanted.plan,
            wanted.thresholds,
            step=found.step,
            ranks=found.ranks,
            steps=found.steps,
        )
        self._latest = check
        change = tally.add(check)
        _write(log, check)
        if self._told:
            self._told(check, change)


def _ending(code: int, seconds: float, words: Sequence[wire.Message], killed: int) -> Ending:
    ooms = [message for message in words if message.kind == "oom"]
    reasons = [message.why for message in words if message.kind == "end" and message.why]
    return Ending(
        code=code,
        seconds=seconds,
        oom=ooms[-1] if ooms else None,
        ooms=len(ooms),
        # Of several ranks the first says why: the others end because of it.
        why=reasons[0] if reasons else "",
        oom_kills=max(0, killed),
    )


def _blind(words: Sequence[wire.Message]) -> list[str]:
    reasons = {message.why for message in words if message.kind == "blind"}
    return [f"a process was not read from within ({why}): install memplan where it runs" for why in sorted(reasons)]


def _outcome(wanted: Wanted, ending: Ending, tally: CheckTally) -> RunOutcome:
    return RunOutcome(
        command=wanted.command,
        plan=wanted.plan,
        ending=ending,
        checks=tally.checks,
        steps=tally.steps,
        level=tally.level,
        changes=tuple(tally.changes),
        peaks=tally.peaks,
        resident=tally.resident,
        curve=tuple(tally.curve),
        recommendations=tally.recommendations,
        post_mortem=post_mortem(ending, tuple(tally.history), wanted.plan),
        notes=tally.all_notes,
    )


def _write(log: Log | None, line: Line | None) -> None:
    if log is not None and line is not None:
        log.write(line)
