"""Temporary storage of the CUB algorithms that PyTorch's kernels call."""

from memplan.trace.scratch.cuda_shapes import ceil_div, round_up

# Onesweep policy of cub::DeviceRadixSort for 8-byte keys and values on sm80 and newer; the one-tile sort holds 2304
# items. Fitted to the temporary of a real trace with 4096 keys (72,191 bytes, torch 2.11); 8192 keys on another machine
# then came out exactly (138,751 bytes), and 512 to 2048 keys take 1 byte as observed.
_TILE_ITEMS = 3840
_SINGLE_TILE_ITEMS = 2304
_RADIX_BITS = 8
_DIGITS = 1 << _RADIX_BITS
_KEY_BYTES = _VALUE_BYTES = _OFFSET_BYTES = 8
_LOOKBACK_BYTES = _COUNTER_BYTES = 4
# AliasTemporaries aligns every part and the whole to 256 bytes.
_ALIGNMENT = 256


def radix_sort_pairs_bytes(items: int, key_bits: int) -> int:
    """Temporary storage of ``cub::DeviceRadixSort::SortPairs`` over int64 keys and values.

    Args:
        items: Pairs to sort.
        key_bits: Bits of the largest key.

    Returns:
        Bytes that CUB asks for.
    """
    if items <= _SINGLE_TILE_ITEMS:
        return 1
    passes = ceil_div(key_bits, _RADIX_BITS)
    parts = [
        passes * _DIGITS * _OFFSET_BYTES,
        ceil_div(items, _TILE_ITEMS) * _DIGITS * _LOOKBACK_BYTES,
        passes * _COUNTER_BYTES,
    ]
    if passes > 1:
        parts += [items * _KEY_BYTES, items * _VALUE_BYTES]
    return _ALIGNMENT - 1 + sum(round_up(part, _ALIGNMENT) for part in parts)


def key_bits(largest: int) -> int:
    """``cub::get_num_bits`` (ATen/cuda/cub.h): bits to sort keys up to this one."""
    return max(1, largest.bit_length())
