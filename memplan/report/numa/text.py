"""The text report of ``memplan numa``: the machine, the plan, and the lines to type."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from memplan.report.draw.layout import bounded, flow, hanging, paragraphs, spread, stacked
from memplan.runtime.numa.commands import Commands, wrapped
from memplan.runtime.numa.placement import MachinePlacement, RankPlacement
from memplan.runtime.numa.records import Device, NumaNode, Topology
from memplan.runtime.numa.system_files import format_list
from memplan.text import clean, shorten
from memplan.units import format_bytes
from memplan.versions import installed

_STATES = {
    "local": ("✓ LOCAL", "bold green", "memory beside its rank"),
    "spilled": ("! SPILLED", "bold yellow", "some memory on other nodes"),
    "short": ("✗ SHORT", "bold red", "less memory than is asked for"),
}


def render(
    topology: Topology, placement: MachinePlacement, lines: Commands, *, width: int = 80, quiet: bool = False
) -> list[Text]:
    """Write a machine and a plan as lines of styled text; ``quiet`` only the commands, to be copied."""
    width = bounded(width)
    typed = list(_typed(lines, width))
    if quiet:
        return [line for line in typed if not line.style]
    blocks = [
        [_head(topology, width)],
        list(_nodes(topology, width)),
        list(_distances(topology.nodes)),
        list(_plan(placement, width)),
        _traffic(topology, placement, width),
        typed,
        paragraphs("notes", [clean(note) for note in (*topology.notes, *placement.notes)], width),
        [_summary(topology, placement)],
    ]
    return stacked(blocks, width)


def _head(topology: Topology, width: int) -> Text:
    counts = f"{_count(len(topology.nodes), 'node')}, {_count(len(topology.gpus), 'GPU')}"
    return spread(Text(f"memplan {installed('memplan')}", style="dim"), Text(counts, style="bold"), width)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _nodes(topology: Topology, width: int) -> Iterator[Text]:
    yield Text(f"{'node':<6}{'cores':>5} {'CPUs':<22}{'free':>11}{'cache':>11}{'total':>11}", style="bold")
    for node in _furnished(topology.nodes):
        memory = "".join(f"{format_bytes(size):>11}" for size in (node.free_bytes, node.cache_bytes, node.total_bytes))
        cpus = shorten(format_list(node.allowed_cpus) or "-", 21)
        yield Text(f"{node.index:<6}{len(node.cores):>5} {cpus:<22}{memory}")
        yield from _devices([device for device in topology.devices if device.node == node.index], width)
        if node.huge_free_bytes:
            yield Text(f"        {format_bytes(node.huge_free_bytes)} free in huge pages")
        if not node.memory_allowed:
            yield Text("        its memory is barred to this process")
    if bare := {node.index for node in topology.nodes} - {node.index for node in _furnished(topology.nodes)}:
        yield Text(f"{format_list(bare):<6}no CPUs and no memory", style="dim")
    if lost := [device for device in topology.devices if device.node is None]:
        yield Text("node not told")
        yield from _devices(lost, width)


def _furnished(nodes: Sequence[NumaNode]) -> list[NumaNode]:
    """Without places that are kept for memory to come, such as a GH200's for parts of its GPU."""
    return [node for node in nodes if node.cpus or node.total_bytes]


def _devices(devices: Sequence[Device], width: int) -> list[Text]:
    return flow("", map(_device_words, devices), width)


def _device_words(device: Device) -> str:
    kind = "NIC" if device.kind == "nic" else "GPU hidden" if device.index is None else f"GPU {device.index}"
    memory = "" if device.memory_node is None else f" (memory: node {device.memory_node})"
    return " ".join(filter(None, [kind, clean(device.name), device.address])) + memory


def _distances(nodes: Sequence[NumaNode]) -> Iterator[Text]:
    nodes = _furnished(nodes)
    if len(nodes) < 2:
        return
    yield Text("distance" + "".join(f"{node.index:>5}" for node in nodes), style="bold")
    for node in nodes:
        yield Text(f"{node.index:>8}" + "".join(f"{node.distance(other.index):>5}" for other in nodes))


def _plan(placement: MachinePlacement, width: int) -> Iterator[Text]:
    yield Text(f"{'rank':<6}{'GPU':<5}{'node':<6}{'CPUs':<24}{'workers':<20}memory", style="bold")
    for rank in placement.ranks:
        gpu = "-" if rank.gpu is None else str(rank.gpu.index)
        workers = shorten(_worker_words(rank), 19)
        cpus = shorten(format_list(rank.cpus), 23)
        yield Text(shorten(f"{rank.rank:<6}{gpu:<5}{rank.node:<6}{cpus:<24}{workers:<20}{_pinned(rank)}", width))


def _traffic(topology: Topology, placement: MachinePlacement, width: int) -> list[Text]:
    """What crosses between nodes, where there are several and something is sent."""
    if not placement.step_bytes or len(topology.nodes) < 2:
        return []
    ways = [
        f"{format_bytes(each.bytes)} from node {each.source} to {each.target} (distance {each.distance})"
        for each in placement.traffic
    ]
    about = f"{format_bytes(placement.step_bytes)} a rank and step (arithmetic)"
    return flow("crosses", [about, *(ways or ["nothing leaves its node"])], width)


def _worker_words(rank: RankPlacement) -> str:
    return format_list({cpu for cpus in rank.workers for cpu in cpus}) or "-"


def _pinned(rank: RankPlacement) -> str:
    return ", ".join(str(node) for node, _ in rank.pinned) or str(rank.memory_node)


def _typed(lines: Commands, width: int) -> Iterator[Text]:
    yield Text("each rank by hand", style="dim")
    for words in lines.ranks:
        yield from map(Text, wrapped(words, width))
    for line in hanging("all ranks: ", lines.torchrun_why, width):
        yield Text(line, style="dim")
    yield from map(Text, wrapped(lines.torchrun, width))
    if lines.shared:
        yield Text("what fills memory for all ranks", style="dim")
        yield from map(Text, wrapped(lines.shared, width))


def _summary(topology: Topology, placement: MachinePlacement) -> Text:
    word, style, meaning = _STATES[placement.state]
    with_gpu = [rank for rank in placement.ranks if rank.gpu and rank.gpu.node is not None]
    own = sum(rank.gpu is not None and rank.gpu.node == rank.node for rank in with_gpu)
    gpus = f"; {own} of {len(with_gpu)} ranks on their GPU's node" if topology.gpus else ""
    return Text.assemble((word, style), f"  {meaning}{gpus}")
