"""The argument of a program that puts it on the GPU, read off its own parser."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from memplan.job.program_arguments import bare, nodes
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
    found = dict(_declared(target))
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


def _declared(target: ScriptTarget) -> Iterator[tuple[str, str]]:
    """Names of such arguments that a program's own file declares, and what is typed of each."""
    for node in nodes(target):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=words, keywords=options):
                takes_none = any(each.arg == "action" for each in options)
                typed = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
                for name in typed:
                    if takes_none and bare(name) in _SWITCHES:
                        yield bare(name), name
                    elif not takes_none and name.startswith("-") and bare(name) in _VALUES:
                        yield bare(name), f"{name} {_VALUES[bare(name)]}"
            case _:
                pass
