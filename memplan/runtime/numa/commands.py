"""A placement as what one types: numactl for each rank, torchrun, Slurm, and a script that torchrun can start."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from memplan.runtime.numa.placement import MachinePlacement, RankPlacement
from memplan.runtime.numa.records import Topology
from memplan.runtime.numa.system_files import format_list, mask
from memplan.runtime.numa.torchrun import MODES, SINCE, differences

DEFAULT_COMMAND = ("python", "train.py")
INDENT = "    "
SCRIPT = "./numa.sh"
"""What the script is called in the lines that start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Lines for a shell; every word is quoted where it has to be."""

    ranks: tuple[tuple[str, ...], ...]
    """Words that start each rank by hand."""
    shared: tuple[str, ...]
    """Words that start what fills memory for all ranks; empty on one node."""
    torchrun: tuple[str, ...]
    """Words that start all ranks: with a binding of torchrun's own, or by the script."""
    torchrun_why: str
    """Why so."""
    slurm: tuple[str, ...]
    """Words that start all ranks under Slurm."""


def commands(
    topology: Topology, placement: MachinePlacement, command: Sequence[str] = DEFAULT_COMMAND, *, strict: bool = False
) -> Commands:
    """Write a placement down.

    ``strict`` gives a rank memory of its node only: the kernel kills it rather than give it other memory.
    """
    words, why = _torchrun(topology, placement, command, strict=strict)
    spread = ("numactl", f"--interleave={format_list(placement.interleave)}", "--", *command)
    return Commands(
        ranks=tuple(rank_words(topology, rank, command, strict=strict) for rank in placement.ranks),
        shared=spread if len(placement.interleave) > 1 else (),
        torchrun=words,
        torchrun_why=why,
        slurm=_slurm(placement, command),
    )


def rank_words(topology: Topology, rank: RankPlacement, command: Sequence[str], *, strict: bool) -> tuple[str, ...]:
    """What starts one rank by hand."""
    return (*_settings(rank), *_numactl(topology, rank, strict=strict), "--", *command)


def script(topology: Topology, placement: MachinePlacement, *, strict: bool = False) -> str:
    """A POSIX shell script that binds by ``LOCAL_RANK`` (torchrun's) or ``SLURM_LOCALID`` and becomes its arguments."""
    lines = ["#!/bin/sh", "# Written by memplan numa. Usage: torchrun --no-python --nproc-per-node=N numa.sh COMMAND …",
             'case "${LOCAL_RANK:-${SLURM_LOCALID:-}}" in']  # fmt: skip
    for rank in placement.ranks:
        words = shlex.join(_numactl(topology, rank, strict=strict))
        lines.append(f'  {rank.rank}) export {shlex.join(_settings(rank))}; exec {words} -- "$@" ;;')
    last = len(placement.ranks) - 1
    lines += [f'  *) echo "numa.sh: LOCAL_RANK must be 0 to {last}" >&2; exit 2 ;;', "esac"]
    return "\n".join(lines) + "\n"


def wrapped(words: Sequence[str], width: int) -> list[str]:
    """A command over several lines, so that it can be copied as it stands; a word is never broken."""
    lines: list[str] = []
    for word in map(_quoted, words):
        # Two cells for the backslash that may follow.
        if lines and len(lines[-1]) + 1 + len(word) <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{INDENT if lines else ''}{word}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def joined(words: Sequence[str]) -> str:
    """A command on one line."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    # An assignment in quotes is none.
    return f"{name}={shlex.quote(value)}" if equals and name.isidentifier() else shlex.quote(word)


def _settings(rank: RankPlacement) -> tuple[str, ...]:
    return (f"OMP_NUM_THREADS={len(rank.main_cores)}",)


def _numactl(topology: Topology, rank: RankPlacement, *, strict: bool) -> tuple[str, ...]:
    memory = topology.by_index[rank.memory_node]
    policy = f"--membind={rank.memory_node}" if strict else f"--preferred={rank.memory_node}"
    return ("numactl", f"--physcpubind={format_list(rank.cpus)}", *([policy] if memory.available_bytes else []))


def _torchrun(
    topology: Topology, placement: MachinePlacement, command: Sequence[str], *, strict: bool
) -> tuple[tuple[str, ...], str]:
    head = ("torchrun", f"--nproc-per-node={len(placement.ranks)}")
    found = differences(topology, placement)
    same = next((mode for mode in MODES if not found[mode]), None)
    if same is None or strict:
        why = "strict memory" if strict else f"--numa-binding=exclusive: {found['exclusive']}"
        return (*head, "--no-python", SCRIPT, *command), f"by the script that -f sh={SCRIPT[2:]} writes; {why}"
    words = command[1:] if command[0] in ("python", "python3") else ("--no-python", *command)
    return (*head, f"--numa-binding={same}", *words), f"the same CPUs (torch >= {SINCE}), no memory policy"


def _slurm(placement: MachinePlacement, command: Sequence[str]) -> tuple[str, ...]:
    masks = ",".join(f"0x{mask(rank.cpus):x}" for rank in placement.ranks)
    return ("srun", f"--ntasks-per-node={len(placement.ranks)}", f"--cpu-bind=mask_cpu:{masks}", *command)
