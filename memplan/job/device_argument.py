"""The argument of a program that puts it on the GPU, read off its own parser."""

from collections.abc import Iterator, Mapping, Sequence

from memplan.job.program_arguments import bare, declared_names
from memplan.job.spec import ScriptTarget

_SWITCHES = ("accel", "cuda", "usecuda", "usegpu", "gpu")
"""Names of arguments that turn the GPU on without a value, in lower case without dashes; the first counts."""
_VALUES: Mapping[str, str] = {"device": "cuda", "accelerator": "gpu", "gpu": "0", "gpuid": "0", "deviceid": "0"}
"""Names of arguments that take a device, and the value that is the GPU."""
_AGAINST = ("nocuda", "noaccel", "nogpu", "cpu", "usecpu", "disablecuda")
"""Names of arguments that keep a program from the GPU."""


def for_gpu(target: ScriptTarget) -> str:
    """What to change in a program's words so that it takes the GPU: as a hint; empty where nothing is known."""
    kept = next(_against(target.arguments), None)
    if kept is not None:
        return f"leave {kept} out of its arguments"
    found = dict(_typed(target))
    word = next((found[name] for name in (*_SWITCHES, *_VALUES) if name in found), None)
    return f"give it {word}, behind --" if word else ""


def _against(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=False):
        name, has_value, value = word.partition("=")
        if not word.startswith("-"):
            continue
        if bare(name) in _AGAINST and not has_value:
            yield word
        elif bare(name) in ("device", "accelerator") and (value or following) == "cpu":
            yield word if has_value else f"{word} {following}"


def _typed(target: ScriptTarget) -> Iterator[tuple[str, str]]:
    """Names of such arguments that a program declares, and what is typed of each; without those that are typed now."""
    for name, action in declared_names(target):
        if not name.startswith("-") or name in target.arguments:
            continue
        if action is not None and "store_false" not in action and bare(name) in _SWITCHES:
            yield bare(name), name
        elif action is None and bare(name) in _VALUES:
            yield bare(name), f"{name} {_VALUES[bare(name)]}"
