"""The census of memory pools as every report tells it."""

from collections.abc import Iterator

from memplan.audit.pool_records import Definition, PoolCalls, PoolCensus

_MOST = 8
"""Names and modules that are listed; JSON has them all."""


def rows(census: PoolCensus) -> list[tuple[str, str]]:
    """What there is, and how much of it; nothing where nobody has a pool of memory."""
    if census.is_empty:
        return []
    on = [each for each in census.switches if each.default]
    switches = f"{len(on)} of {len(census.switches)}" if census.switches else "no switch"
    without = len(census.modules_without_pool)
    return [
        ("defined", _names([each.name for each in census.classes])),
        ("imported", _names([f"{name} x{number}" for name, number in census.imported.items()])),
        ("used", _names([f"{name} x{number}" for name, number in census.used.items()])),
        ("on by default", f"{switches}{': ' if on else ''}{_names([_at(each) for each in on]) if on else ''}"),
        ("modules with a pool", f"{census.modules - without} of {census.modules}"),
        *(("taken, given back", f"{_owner(each)}: {counted(each)}") for each in census.calls),
    ]


def remarks(census: PoolCensus) -> Iterator[str]:
    """What to look at; each is a count in the text, and no verdict."""
    for each in census.unused_factories:
        yield f"{_at(each)}: no file uses this pool"
    for short in census.calls:
        if short.is_short:
            yield f"{_owner(short)}: gives back less often than it takes ({counted(short)})"
    if len(census.modules_without_pool) < census.modules:
        shown = census.modules_without_pool[:_MOST]
        yield from (f"{_at(each)}: module without a pool" for each in shown)
        if more := len(census.modules_without_pool) - len(shown):
            yield f"and {more} more modules without a pool"
    if census.differing_names:
        named = "; ".join(f"{name}() of {_names(owners)}" for name, owners in census.differing_names.items())
        yield f"pools call the same thing differently: {named}"


def counted(calls: PoolCalls) -> str:
    """``2 taken, 1 given back``."""
    on = f", {calls.handed_on} handed on" if calls.handed_on else ""
    everything = ", all given back at once" if calls.gives_all_back else ""
    return f"{calls.taken} taken, {calls.given_back} given back{on}{everything}"


def _at(each: Definition) -> str:
    return f"{each.name} {each.file}:{each.line}"


def _owner(calls: PoolCalls) -> str:
    return f"{calls.owner or 'functions'} {calls.file}"


def _names(names: "list[str] | tuple[str, ...]") -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) + more) or "nothing"
