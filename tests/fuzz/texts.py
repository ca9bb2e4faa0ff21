"""Texts that break programs: as a value on the command line, and inside of files."""

from random import Random

HOSTILE = (
    "", " ", "\n", "\r\n", "a\nb", "a\rb", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "a\tb", "\x7f",
    "\x08",
    "'", '"', '"""', "'''", "`id`", "$(id)", "${HOME}", "%s%n", "{}", "{gpu}", "{0.__class__}",
    "\\", "\\n", "#", ";", "|",
    "[tool.memplan]", "[bold]x[/bold]", "[/]", "[link=x]", "<script>alert(1)</script>", "<!--", "]]>", "&amp;",
    "::error::x",
    "-", "--", "---", "-1", "--=", "=", "==", ":", "::", ",", ",,", "/", "//", ".", "..", "./", "*", "?", "~", "@",
    "@file",
    "0", "-0", "00", "1e9", "1e999", "-1e999", "nan", "inf", "-inf", "NaN", "0x10", "1_000", "1,5", "\u0663",
    "\u00bd", "1.5.2",
    "9" * 25, "9" * 10_000, "-" + "9" * 400, "1" + "0" * 18, str(2**63), str(2**64), "0." + "1" * 500,
    "true", "null", "None", "[]", "()", "0GiB", "-1GiB", "1GiBB", "1e30GiB", "10 s", "1h2m", "s",
    "\uff50reset:gpt2", "gpt\uff12", "\ufb01le.py", "mod\u0435l.py", "e\u0301", "\u202egpj.exe", "\u200b", "\ufeff",
    "\u2028", "\U0001f4a9",
    "\udcff", "a\udc80b", "\ud800", "x" * 300, "x/" * 200, "ä" * 256, "a" * 70_000,
    "preset:", "preset:nothing", "hf:", "hf:../x", "model.py:", "model.py:nothing", "a.b:c", "sys:exit", "os:_exit",
    "x=float32[B]", "x=float32[B", "x=[", "=float32[B]", "x=float32[-1]", "x=float32[99999999999999999999]",
    "fsdp=0", "fsdp=2,fsdp=2", "fsdp=99999999999", "tp=-1", "fsdp=2,tp=", "hsdp=2x", "r=0", "r=16,alpha=", "r=x",
    "json=", "json=/", "json=.", "text=\n", "html", "snapshot", "snapshot=", "json=no/where.json", "text=text=text",
    "expandable_segments:True", "max_split_size_mb:-1", "garbage_collection_threshold:9",
    "roundup_power2_divisions:[", "a:b:c",
)  # fmt: skip
"""None is an absolute path: a file that is written stays in the folder of its case."""
CONTROLS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) - {"\n", "\t"}
"""What a terminal obeys."""


def hostile(random: Random) -> str:
    """One of them, or two put together."""
    one = random.choice(HOSTILE)
    if random.random() < 0.15:
        other = random.choice(HOSTILE)
        return one + other if len(one) + len(other) < 1000 else other
    return one


def as_argument(text: str) -> str:
    """As a process may be given it: no NUL, and no surrogate that stands for no byte."""
    return (
        text.replace("\x00", "")
        .encode("utf-8", "replace" if "\ud800" in text else "surrogateescape")
        .decode("utf-8", "surrogateescape")
    )
