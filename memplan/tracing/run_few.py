"""Runs a few of many turns that are alike, and tells the recorder what the last of them stands for."""

from collections.abc import Iterator

from memplan.tracing.recorder import Recorder
from memplan.tracing.records import Turn


def run_few(recorder: Recorder, count: int, leading: int, last: int) -> Iterator[int]:
    """Yield the numbers of the turns that run: the leading ones and the last.

    Args:
        recorder: Watches them.
        count: How many there are.
        leading: So many of the first run; where any is left out, the last two of these are alike.
        last: So many of the last run, too.
    """
    places = [_place(recorder)]
    for number in range(min(leading, count)):
        yield number
        places.append(_place(recorder))
    further = count - leading - last
    if further > 0 and recorder.recording:
        (former_op, former_event), (first_op, first_event), (end_op, end_event) = places[-3:]
        turn = Turn(
            former_op=former_op,
            former_event=former_event,
            first_op=first_op,
            end_op=end_op,
            first_event=first_event,
            end_event=end_event,
            further=further,
        )
        recorder.turns.append(turn)
    yield from range(max(leading, count - last), count)


def _place(recorder: Recorder) -> tuple[int, int]:
    return len(recorder.ops), len(recorder.ledger.events)
