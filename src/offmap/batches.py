"""Batches of states and controls as users give them: checked, and with one leading dimension."""

import math
from typing import Any

import numpy as np
from jaxtyping import Array


def check_size(array: np.ndarray | Array, size: int, name: str, least: int) -> None:
    """Refuse an array without `size` numbers in its last dimension, or of too few dimensions."""
    if array.ndim < least or array.shape[-1] != size:
        raise ValueError(
            f"`{name}` needs {'at least 2 dimensions and ' if least > 1 else ''}{size} numbers in "
            f"its last one; got shape {array.shape}. Check the order of the columns."
        )


def batch(values: Any, size: int, name: str, least: int) -> np.ndarray:
    """Values as finite float64 numbers, `size` of them in the last dimension."""
    array = np.asarray(values, dtype=np.float64)
    check_size(array, size, name, least)
    if not np.all(np.isfinite(array)):
        bad = int(np.sum(~np.isfinite(array)))
        raise ValueError(f"`{name}` must be finite; {bad} of its values are not. Remove them.")
    return array


def broadcast(first: tuple[int, ...], second: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Leading dimensions that two batches have together."""
    if first == second:
        return first
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise ValueError(
            f"Leading dimensions of {what} must match or broadcast; got {first} and {second}. "
            f"Give one control (sequence) for each state."
        ) from None


def flat(array: np.ndarray, shape: tuple[int, ...], kept: int) -> np.ndarray:
    """The array with the leading dimensions `shape` in one, and the last `kept` as they are."""
    last = array.shape[array.ndim - kept :]
    if array.shape != (*shape, *last):
        array = np.broadcast_to(array, (*shape, *last))
    return array.reshape(math.prod(shape), *last)
