"""Temporary storage of the CUB algorithms that PyTorch's kernels call.

Follows CUB's dispatch_radix_sort.cuh, dispatch_scan.cuh, single_pass_scan_operators.cuh and util_type.cuh, and
PyTorch's ATen/cuda/cub.cuh. The radix sort of 8-byte keys and values was held against real traces: 4096 keys take
72,191 bytes (torch 2.11), 8192 keys on another machine exactly the 138,751 that then follow, 512 to 2048 keys 1 byte.
"""

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_shapes import ceil_div, round_up
from memplan.tracing.scratch.rules import Scratch

# Onesweep policies of sm80 and of sm90 (tuning_radix_sort.cuh), with offsets of 64 bits: threads, and items per thread
# of 4 bytes, which larger keys and values have fewer of.
_THREADS = 384
_HOPPER = (9, 0)
_ITEMS, _ITEMS_OF_FLOAT_PAIRS = 21, 17
_HOPPER_KEYS_ALONE, _HOPPER_FLOAT_PAIRS, _HOPPER_FLOATS_AND_INDICES = 19, 17, 29
_HOPPER_INDICES, _HOPPER_INDEX_PAIRS = 30, 24
# SingleTilePolicy: one block sorts this much at once.
_SINGLE_THREADS, _SINGLE_ITEMS = 256, 19
_NOMINAL_BYTES = 4
_RADIX_BITS = 8
_DIGITS = 1 << _RADIX_BITS
_OFFSET_BYTES = 8
_LOOKBACK_BYTES = _COUNTER_BYTES = 4
# AliasTemporaries aligns every part and the whole to 256 bytes.
_ALIGNMENT = 256
# Scans and selections keep one state per tile, and a warp's worth more. Tiles are tuned by architecture and operator;
# 128 threads of 15 4-byte items are the default of sm60 and newer: a state for some two thousand elements.
_TILE_THREADS, _TILE_ITEMS = 128, 15
_TILE_PADDING = 32
# On an H100 (torch 2.11, CUDA 13.0, 2026-11-23) the default's tiles took, with the warp's: 768 bytes in a sum of 4-byte
# numbers and in a selection, and in sums of 8-byte ones 1,024 (one tile, and ten), 1,280 (19) and 1,536 (23).
_HOPPER_STATUS_BYTES = 8
# There, runs of 163,840 8-byte keys took 1,536: 22 to 32 tiles, of which this is the middle; 16,384 keys took 1,024.
_RUN_KEYS = 6144
# DeviceReduce: blocks that fill the device five times (tuning of dispatch_reduce.cuh), 256 threads each.
_REDUCE_SUBSCRIPTION, _REDUCE_THREADS = 5, 256


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
    nominal = (_hopper_items if capability >= _HOPPER else _ampere_items)(key_bytes, value_bytes)
    tile = _THREADS * _per_thread(nominal, widest)
    parts = [
        passes * _DIGITS * _OFFSET_BYTES,
        ceil_div(items, tile) * _DIGITS * _LOOKBACK_BYTES,
        passes * _COUNTER_BYTES,
    ]
    if passes > 1:
        parts += [items * key_bytes, items * value_bytes]
    return _aligned(*parts)


def _ampere_items(key_bytes: int, value_bytes: int) -> int:
    return _ITEMS_OF_FLOAT_PAIRS if key_bytes == _NOMINAL_BYTES and value_bytes else _ITEMS


def _hopper_items(key_bytes: int, value_bytes: int) -> int:
    if key_bytes > _NOMINAL_BYTES:
        return _HOPPER_INDEX_PAIRS if value_bytes > _NOMINAL_BYTES else _HOPPER_INDICES
    if not value_bytes:
        return _HOPPER_KEYS_ALONE
    return _HOPPER_FLOATS_AND_INDICES if value_bytes > _NOMINAL_BYTES else _HOPPER_FLOAT_PAIRS


def segmented_sort_pairs_bytes(items: int, *, key_bytes: int, value_bytes: int) -> int:
    """Temporary storage of ``cub::DeviceSegmentedRadixSort::SortPairs``: a second copy of keys and values."""
    return _aligned(items * key_bytes, items * value_bytes)


def tile_states(key: str, items: int, value_bytes: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of a scan or selection (``cub::DeviceScan``, ``DeviceSelect``): one state per tile.

    Args:
        key: Names the allocation.
        items: Elements.
        value_bytes: Bytes of what is summed up.
        device: Whose tiles.
    """
    tile = _TILE_THREADS * _per_thread(_TILE_ITEMS, value_bytes)
    return Scratch("alloc", key, _states(ceil_div(items, tile), value_bytes, device))


def run_states(key: str, items: int, key_bytes: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceSelect::UniqueByKey``: one state per tile.

    Args:
        key: Names the allocation.
        items: Keys.
        key_bytes: Bytes of a key.
        device: Whose tiles.
    """
    return Scratch("alloc", key, _states(ceil_div(items, _RUN_KEYS), key_bytes, device))


def _states(tiles: int, value_bytes: int, device: DeviceTraits) -> int:
    # Before Hopper a state and its value move in one transaction.
    earlier = max(8, 2 * value_bytes)
    word = _HOPPER_STATUS_BYTES + 2 * value_bytes if device.capability >= _HOPPER else earlier
    return _aligned((tiles + _TILE_PADDING) * word)


def reduction_sums(key: str, value_bytes: int, device: DeviceTraits) -> Scratch:
    """Temporary storage of ``cub::DeviceReduce::Sum``: a sum for each block of a full grid.

    Args:
        key: Names the allocation.
        value_bytes: Bytes of a sum.
        device: How many blocks fill it.
    """
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
