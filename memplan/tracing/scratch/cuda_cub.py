"""Temporary storage of the CUB algorithms that PyTorch's kernels call.

Follows CUB's dispatch_radix_sort.cuh, dispatch_scan.cuh, dispatch_scan_by_key.cuh, dispatch_select_if.cuh,
dispatch_unique_by_key.cuh, dispatch_reduce.cuh, their tuning_*.cuh, single_pass_scan_operators.cuh and util_type.cuh as
of CUDA 12.4 to 13.0, and PyTorch's ATen/cuda/cub.cuh. An H200 with torch 2.11 (CUDA 13.0) took exactly this for 14
lengths from 1 to 4,000,000 (benchmarks/gpu/results/operators); sorts of 8-byte pairs were held against A100s, too.
"""

from collections.abc import Mapping
from typing import Final

from memplan.tracing.cuda.release import cuda_major
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_shapes import ceil_div, product, round_up
from memplan.tracing.scratch.rules import Scratch

Tile = tuple[int, int]
"""Threads, and items of each."""

# Onesweep policies of sm80 and of sm90 (tuning_radix_sort.cuh), with offsets of 64 bits: threads, and items per thread
# of 4 bytes, which larger keys and values have fewer of.
_THREADS = 384
_HOPPER = (9, 0)
_ITEMS, _ITEMS_OF_FLOAT_PAIRS = 21, 17
_HOPPER_KEYS_ALONE, _HOPPER_FLOAT_PAIRS, _HOPPER_FLOATS_AND_INDICES = 19, 17, 29
_HOPPER_INDICES, _HOPPER_INDEX_PAIRS = 30, 24
_HOPPER_SMALL_KEYS: Final[Mapping[tuple[int, int], Tile]] = {
    (1, 0): (512, 19), (2, 0): (512, 19), (1, 8): (384, 18), (2, 8): (512, 23)
}  # fmt: skip
"""Bytes of a key and of a value → threads and items (``sm90_small_key_tuning``)."""
# SingleTilePolicy: one block sorts this much at once.
_SINGLE_THREADS, _SINGLE_ITEMS = 256, 19
_NOMINAL_BYTES = 4
_RADIX_BITS = 8
_DIGITS = 1 << _RADIX_BITS
_OFFSET_BYTES = 8
_LOOKBACK_BYTES = _COUNTER_BYTES = 4
# AliasTemporaries aligns every part and the whole to 256 bytes.
_ALIGNMENT = 256
# Scans and selections keep one state per tile, and a warp's worth more.
_TILE_PADDING = 32
_STATUS_BYTES = 4
_SINGLE_WORDS = (4, 8)
"""Bytes of values that move with their status in one transaction, twice as wide; half types do not."""
_AMPERE = (8, 0)
_CUDA_OF_NESTED_STATES = 13
"""Since CUB 3 states are aligned once among themselves (``tile_state_allocation_size``) and once with the rest."""
# DefaultPolicy of scans, which are tuned for CUB's own operators alone: PyTorch sums up by operators of its own.
_SCAN_THREADS, _SCAN_ITEMS = 128, 15
_COUNTER_STATE_BYTES = 4
"""Of a selection's numbers of elements."""
_KEY_AND_COUNT_BYTES = 16
"""Of a running sum of four bytes that begins anew where a four-byte key changes, with its status."""
# DeviceReduce: blocks that fill the device five times (tuning of dispatch_reduce.cuh), 256 threads each.
_REDUCE_SUBSCRIPTION, _REDUCE_THREADS, _REDUCE_ITEMS = 5, 256, 16
_SELECTED: Final = (384, 11), (384, 6), (128, 5)
"""Tiles of ``DeviceSelect::Flagged`` over 8-byte positions: of Hopper, of sm80, of others (``_tuned``)."""
_SUMMED_BY_KEY: Final = (288, 14), (256, 15), (256, 9)
"""Of ``DeviceScan::InclusiveSumByKey``, four bytes both."""
_RUNS: Final[Mapping[int, tuple[Tile, Tile, Tile]]] = {
    4: ((512, 14), (256, 11), (64, 11)),
    8: ((640, 7), (256, 7), (64, 5)),
}
"""Bytes of a key → tiles of ``DeviceSelect::UniqueByKey`` with four-byte values."""


def radix_sort_pairs_bytes(
    items: int, key_bits: int, *, key_bytes: int = 8, value_bytes: int = 8, capability: tuple[int, int] = (8, 0)
) -> int:
    """Temporary storage of ``cub::DeviceRadixSort::SortPairs``.

    Args:
        items: Pairs to sort.
        key_bits: Bits of the largest key.
        key_bytes: Bytes of a key.
        value_bytes: Bytes of a value; 0 for ``SortKeys``.
        capability: Compute capability, by which tiles are tuned.

    Returns:
        Bytes that CUB asks for.
    """
    widest = max(key_bytes, value_bytes)
    if items <= _SINGLE_THREADS * _per_thread(_SINGLE_ITEMS, widest):
        return 1
    passes = ceil_div(key_bits, _RADIX_BITS)
    threads, nominal = (_hopper_tile if capability >= _HOPPER else _ampere_tile)(key_bytes, value_bytes)
    tile = threads * _per_thread(nominal, widest)
    parts = [
        passes * _DIGITS * _OFFSET_BYTES,
        ceil_div(items, tile) * _DIGITS * _LOOKBACK_BYTES,
        passes * _COUNTER_BYTES,
    ]
    if passes > 1:
        parts += [items * key_bytes, items * value_bytes]
    return _aligned(*parts)


def _ampere_tile(key_bytes: int, value_bytes: int) -> Tile:
    return _THREADS, _ITEMS_OF_FLOAT_PAIRS if key_bytes == _NOMINAL_BYTES and value_bytes else _ITEMS


def _hopper_tile(key_bytes: int, value_bytes: int) -> Tile:
    if (key_bytes, value_bytes) in _HOPPER_SMALL_KEYS:
        return _HOPPER_SMALL_KEYS[key_bytes, value_bytes]
    if key_bytes > _NOMINAL_BYTES:
        return _THREADS, _HOPPER_INDEX_PAIRS if value_bytes > _NOMINAL_BYTES else _HOPPER_INDICES
    if not value_bytes:
        return _THREADS, _HOPPER_KEYS_ALONE
    return _THREADS, _HOPPER_FLOATS_AND_INDICES if value_bytes > _NOMINAL_BYTES else _HOPPER_FLOAT_PAIRS


def segmented_sort_pairs_bytes(items: int, *, key_bytes: int, value_bytes: int) -> int:
    """Temporary storage of ``cub::DeviceSegmentedRadixSort::SortPairs``: a second copy of keys and values."""
    return _aligned(items * key_bytes, items * value_bytes)


def tile_states(key: str, items: int, value_bytes: int) -> Scratch:
    """Temporary storage of a running sum (``cub::DeviceScan``): one state per tile.

    Args:
        key: Names the allocation.
        items: Elements.
        value_bytes: Bytes of what is summed up.
    """
    each = max(1, min(_SCAN_ITEMS * _NOMINAL_BYTES // value_bytes, 2 * _SCAN_ITEMS))
    return Scratch("alloc", key, _aligned(_states(items, (_SCAN_THREADS, each), value_bytes)))


def selection_states(key: str, items: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceSelect::Flagged`` over positions: one state per tile."""
    return Scratch("alloc", key, _aligned(_states(items, _tuned(_SELECTED, device), _COUNTER_STATE_BYTES)))


def run_states(key: str, items: int, key_bytes: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceSelect::UniqueByKey``: one state per tile, of offsets of 64 bits.

    Args:
        key: Names the allocation.
        items: Keys.
        key_bytes: Bytes of a key.
        device: Whose tiles.
    """
    return Scratch("alloc", key, _aligned(_states(items, _tuned(_RUNS[key_bytes], device), _OFFSET_BYTES)))


def states_by_key(key: str, items: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceScan::InclusiveSumByKey``: a state per tile, and the key before it."""
    tiles = ceil_div(items, product(_tuned(_SUMMED_BY_KEY, device)))
    states = (tiles + _TILE_PADDING) * _KEY_AND_COUNT_BYTES
    return Scratch("alloc", key, _aligned(states, (tiles + 1) * _NOMINAL_BYTES))


def _tuned(tiles: tuple[Tile, Tile, Tile], device: DeviceTraits) -> Tile:
    hopper, ampere, others = tiles
    return hopper if device.capability >= _HOPPER else ampere if device.capability == _AMPERE else others


def _states(items: int, tile: Tile, value_bytes: int) -> int:
    states = ceil_div(items, product(tile)) + _TILE_PADDING
    if value_bytes in _SINGLE_WORDS:
        parts: tuple[int, ...] = (states * 2 * value_bytes,)
    else:
        parts = (states * _STATUS_BYTES, states * value_bytes, states * value_bytes)
    nested = _ALIGNMENT - 1 if cuda_major() >= _CUDA_OF_NESTED_STATES else 0
    return nested + sum(round_up(part, _ALIGNMENT) for part in parts)


def reduction_sums(key: str, items: int, value_bytes: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceReduce::Sum``: a sum for each block of a full grid, unless one does it all.

    Args:
        key: Names the allocation.
        items: Elements.
        value_bytes: Bytes of a sum.
        device: How many blocks fill it.
    """
    if items <= _REDUCE_THREADS * _per_thread(_REDUCE_ITEMS, value_bytes):
        return Scratch("alloc", key, 1)
    blocks = device.sm_count * (device.threads_per_sm // _REDUCE_THREADS) * _REDUCE_SUBSCRIPTION
    return Scratch("alloc", key, _aligned(blocks * value_bytes))


def key_bits(largest: int) -> int:
    """``cub::get_num_bits`` (ATen/cuda/cub.h): bits to sort keys up to this one."""
    return max(1, largest.bit_length())


def _per_thread(nominal: int, item_bytes: int) -> int:
    """``Nominal4BItemsToItems``."""
    return min(nominal, max(1, nominal * _NOMINAL_BYTES // item_bytes))


def _aligned(*parts: int) -> int:
    return _ALIGNMENT - 1 + sum(round_up(part, _ALIGNMENT) for part in parts)
