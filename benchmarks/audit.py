"""False positives of ``memplan audit``, its speed, and what other linters find of the planted hazards.

    python benchmarks/audit.py FOLDER [--fetch] [--torchfix PATH] [--ruff PATH]
    python benchmarks/audit.py --pools

``FOLDER`` holds packages that took no part in making the rules, each as ``pip install --no-deps --target FOLDER/NAME
NAME==VERSION`` leaves it; ``--fetch`` does that for the versions in ``audit_judged.toml``. That file says of every
finding in them whether it was true, harmless or false, and why. The "blind" set comes first: judged by another reader
than the author of the rules, and no rule changed since. The earlier sets were judged by the author, who improved the
rules after each; what today's rules find of all of them is told beside. ``--pools`` counts memory pools in a package
with planted defects and in 20 installed packages that have none.
"""

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memplan.audit.run import audit
from memplan.findings.records import PRIORITIES
from memplan.findings.rules import AUDIT

HERE = Path(__file__).parent
JUDGED = HERE / "audit_judged.toml"
VERDICTS = ("true", "harmless", "false")
BLIND = "blind"
"""The set that was judged with the rules frozen."""
JUDGED_PRIORITY: Mapping[str, str] = {code: rule.priority for code, rule in AUDIT.items()} | {
    "MA011": "high", "MA048": "low", "MA062": "low",
}  # fmt: skip
"""As the rules were when they were judged: MA011 is of medium priority since, and the other two are gone."""
Z = 1.96
"""Of a 95 % interval."""
DRAWS = 10_000
"""Resamples of the packages."""


def wilson(false: int, total: int) -> tuple[float, float]:
    """Ends of Wilson's 95 % interval of a share."""
    if not total:
        return 0.0, 1.0
    share = false / total
    middle = (share + Z * Z / (2 * total)) / (1 + Z * Z / total)
    half = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total)) / (1 + Z * Z / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def line(name: str, verdicts: Sequence[str]) -> str:
    """A row of the table."""
    counts = Counter(verdicts)
    low, high = wilson(counts["false"], len(verdicts))
    share = counts["false"] / len(verdicts) if verdicts else 0.0
    cells = "".join(f"{counts[verdict]:>9}" for verdict in VERDICTS)
    return f"{name:<28}{len(verdicts):>6}{cells}{share:>8.1%}   {low:.1%} to {high:.1%}"


def by_package(findings: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Ends of the 95 % bootstrap interval over packages: findings of one package resemble each other."""
    packages = Counter(each["package"] for each in findings)
    false = Counter(each["package"] for each in findings if each["verdict"] == "false")
    names, draw = sorted(packages), random.Random(0)
    shares = []
    for _ in range(DRAWS):
        drawn = draw.choices(names, k=len(names))
        shares.append(sum(false[name] for name in drawn) / sum(packages[name] for name in drawn))
    shares.sort()
    return shares[int(0.025 * DRAWS)], shares[int(0.975 * DRAWS)]


def judged_table(findings: Sequence[Mapping[str, Any]]) -> None:
    """Per rule, per priority and overall."""
    print(f"{'':<28}{'found':>6}{'true':>9}{'harmless':>9}{'false':>9}{'false':>8}   95 % (Wilson)")
    for rule in sorted({each["rule"] for each in findings}):
        print(line(f"{rule} {JUDGED_PRIORITY[rule]}", [each["verdict"] for each in findings if each["rule"] == rule]))
    groups = {f"all of {name} priority": [e for e in findings if JUDGED_PRIORITY[e["rule"]] == name]
              for name in PRIORITIES}  # fmt: skip
    for name, group in (groups | {"all": list(findings)}).items():
        low, high = by_package(group)
        print(f"{line(name, [each['verdict'] for each in group])}; {low:.1%} to {high:.1%} by package")


def judged_tables(findings: Sequence[Mapping[str, Any]]) -> None:
    """The blind set, then the earlier ones."""
    blind = [each for each in findings if each["set"] == BLIND]
    earlier = [each for each in findings if each["set"] != BLIND]
    print("blind set: judged by another than the author of the rules, the rules frozen")
    judged_table(blind)
    print("\nearlier sets: judged by the author, the rules improved after each")
    judged_table(earlier)
    for name in dict.fromkeys(each["set"] for each in earlier):
        print(line(f"{name} set", [each["verdict"] for each in earlier if each["set"] == name]))


def fetch(folder: Path, packages: Mapping[str, str]) -> None:
    """Install each package in a folder of its own; nothing of it is run."""
    for name, version in packages.items():
        if not (folder / name).exists():
            words = ["install", "--no-deps", "--no-compile", "-q", "--target", str(folder / name), f"{name}=={version}"]
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def again(folder: Path, packages: Iterable[str], findings: Sequence[Mapping[str, Any]]) -> None:
    """What the rules of today find of what was judged, and what they find besides."""
    print("\nthe judged sets again, with rules repaired by what they showed: not blind")
    there = [name for name in packages if (folder / name).is_dir()]
    before = time.perf_counter(), time.process_time()
    result = audit([folder / name for name in there])
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    found = {
        (each.code, Path(each.place.file).relative_to(folder).as_posix(), each.place.cell, each.place.line)
        for each in result.findings
    }
    judged = [(_place(each), each["verdict"]) for each in findings if each["package"] in there]
    kept = [verdict for place, verdict in judged if place in found]
    new = found - {place for place, _ in judged}
    lines = sum(file.lines for file in result.files)
    print(f"\nthe rules of today over {len(there)} of these packages: {len(result.files):,} files, {lines:,} lines")
    rate = cpu / max(1, len(result.files)) * 1000
    print(f"one process: {wall:.1f} s wall, {cpu:.1f} s CPU; {rate:.1f} s CPU for 1,000 files")
    print(line("judged and found again", kept))
    for name in dict.fromkeys(each["set"] for each in findings):
        some = [each for each in findings if each["set"] == name and each["package"] in there]
        print(line(f"  {name} set", [each["verdict"] for each in some if _place(each) in found]))
    for rule in sorted({each["rule"] for each in findings}):
        some = [each["verdict"] for each in findings if each["rule"] == rule and _place(each) in found]
        lost = Counter(each["verdict"] for each in findings if each["rule"] == rule and _place(each) not in found)
        if lost:
            print(f"{line(f'  {rule}', some)}   no longer found: {dict(lost)}")
    gone = Counter(verdict for place, verdict in judged if place not in found)
    print(f"judged and no longer found: {dict(gone)}; found and not judged: {len(new)}")
    for place in sorted(new, key=str):
        print("   not judged:", *place)


def _place(finding: Mapping[str, Any]) -> tuple[str, str, int | None, int]:
    """Rule, file, cell of a notebook, line."""
    return finding["rule"], f"{finding['package']}/{finding['file']}", finding.get("cell"), finding["line"]


def planted() -> list[tuple[str, str, int]]:
    """Rule, text and marked line of every positive case of the tests."""
    sys.path.insert(0, str(HERE.parent))
    from tests.audit.cases import HEAD, POSITIVE

    cases = []
    for rule, bodies in POSITIVE.items():
        for body in bodies:
            text = HEAD + body
            marked = next(number for number, each in enumerate(text.split("\n"), 1) if "# <-" in each)
            cases.append((rule, text, marked))
    return cases


def peers(tools: Mapping[str, Sequence[str]]) -> None:
    """What others report on the marked lines of the planted cases, whatever they say of them."""
    cases = planted()
    rules = len({rule for rule, _, _ in cases})
    print(f"\nplanted hazards: {len(cases)} cases of {rules} rules; found on the marked line")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number, (_, text, _) in enumerate(cases):
            (folder / f"case_{number}.py").write_text(text)
        result = audit([folder])
        ours = {(Path(each.place.file).stem, each.place.line, each.code) for each in result.findings}
        hits = [(f"case_{number}", marked, rule) in ours for number, (rule, _, marked) in enumerate(cases)]
        print(f"  memplan audit          {sum(hits):>4} (its own tests: a check, not a figure)")
        for name, words in tools.items():
            said = _reported([*words, str(folder)])
            found = [(number, said[f"case_{number}", marked]) for number, (_, _, marked) in enumerate(cases)
                     if (f"case_{number}", marked) in said]  # fmt: skip
            codes = Counter((cases[number][0], code) for number, each in found for code in each)
            told = ", ".join(f"{rule} as {code} x{count}" for (rule, code), count in sorted(codes.items()))
            print(f"  {name:<22} {len(found):>4} {told}")


def pools() -> None:
    """The census of memory pools, where it should find something and where not."""
    sys.path.insert(0, str(HERE.parent))
    from memplan.report.audit.pools import remarks
    from tests.audit.test_pool_census import PACKAGE, WITHOUT_POOLS

    with tempfile.TemporaryDirectory() as place:
        for name, text in PACKAGE.items():
            (Path(place) / name).write_text(text)
        print("planted:")
        for each in remarks(audit([Path(place)]).pools):
            print("  ", each.replace(f"{place}/", ""))
    print("packages without pools:")
    for name in WITHOUT_POOLS:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            print(f"   {name:<20} not installed")
            continue
        found = audit([Path(spec.submodule_search_locations[0])], rules=("MA082",))
        print(f"   {name:<20} {len(found.files):>5} files  {'no pools' if found.pools.is_empty else found.pools}")


def _reported(words: Sequence[str]) -> dict[tuple[str, int], set[str]]:
    """File's stem and line → codes; reads ``file:line:column: CODE message``."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said: dict[tuple[str, int], set[str]] = {}
    for each in done.stdout.splitlines():
        parts = each.split(":", 3)
        if len(parts) == 4 and parts[1].isdigit() and parts[3].split():
            said.setdefault((Path(parts[0]).stem, int(parts[1])), set()).add(parts[3].split()[0])
    return said


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--torchfix")
    parser.add_argument("--ruff")
    parser.add_argument("--pools", action="store_true")
    asked = parser.parse_args()
    if asked.pools:
        pools()
        return
    judged = tomllib.loads(JUDGED.read_text())
    packages = {name: version for each in judged["packages"].values() for name, version in each.items()}
    print(f"memplan audit in {len(packages)} packages that took no part in making its rules, every finding judged\n")
    judged_tables(judged["finding"])
    if asked.folder:
        if asked.fetch:
            asked.folder.mkdir(exist_ok=True)
            fetch(asked.folder, packages)
        again(asked.folder, packages, judged["finding"])
    tools = {"TorchFix, all rules": [asked.torchfix, "-j", "1", "--select", "ALL"]} if asked.torchfix else {}
    # B019: caches on methods. PERF and the rest of ruff know no tensors.
    tools |= (
        {
            "ruff, B (bugbear), PERF": [
                asked.ruff,
                "check",
                "--isolated",
                "--output-format",
                "concise",
                "--select",
                "B,PERF",
            ]
        }
        if asked.ruff
        else {}
    )
    if tools:
        peers(tools)


if __name__ == "__main__":
    main()
