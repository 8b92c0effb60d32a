"""Columns that follow from others: attitude from a quaternion, a clock from two counters."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_FIRST = re.compile(r"(.*?)([._/]?)x")
_SECONDS = re.compile(r"(.*?)(secs?|seconds)")
_NANOSECONDS = ("nanosec", "nanosecs", "nanoseconds", "nsec", "nsecs")
_NO_LENGTH = 1e-6


@dataclass(frozen=True)
class Derived:
    """How a column is found from others."""

    parts: tuple[str, ...]
    of: Callable[..., np.ndarray]


def derived(names: Sequence[str]) -> dict[str, Derived]:
    """All that follow from the named columns.

    Where there are `q.x`, `q.y`, `q.z` and `q.w`, or `qx`, `q_x` and so on, there are also
    `q.roll`, `q.pitch` and `q.yaw`; where there are `sec` and `nanosec`, there is a clock
    `sec+nanosec`.
    """
    known = set(names)
    found: dict[str, Derived] = {}
    for stem, parts in quaternions(names).items():
        found |= {f"{stem}{angle}": Derived(parts, of) for angle, of in ANGLES.items()}
    for name in names:
        match = _SECONDS.fullmatch(name)
        fine = [n for n in _NANOSECONDS if match and match[1] + n in known]
        if match and fine:
            found[f"{name}+{fine[0]}"] = Derived((name, match[1] + fine[0]), _nanoseconds)
    return {name: rule for name, rule in found.items() if name not in known}


def quaternions(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The four components x, y, z, w, by what their angles' names begin with."""
    known = set(names)
    found = {}
    for name in names:
        match = _FIRST.fullmatch(name)
        parts = tuple(name[:-1] + letter for letter in "xyzw")
        if match and match[1] and known.issuperset(parts):
            found[match[1] + ("/" if match[2] == "/" else ".")] = parts
    return found


def unit(
    x: Float[np.ndarray, " N"],
    y: Float[np.ndarray, " N"],
    z: Float[np.ndarray, " N"],
    w: Float[np.ndarray, " N"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Quaternions brought to length 1; those of no length are no attitude."""
    length = np.sqrt(x * x + y * y + z * z + w * w)
    if np.any(length < _NO_LENGTH):
        raise ValueError(
            f"an attitude is a quaternion of length 1; row {int(np.argmax(length < _NO_LENGTH))} "
            f"has length 0: cut these rows, or use other columns"
        )
    return x / length, y / length, z / length, w / length


def _roll(*quaternion: np.ndarray) -> np.ndarray:
    x, y, z, w = unit(*quaternion)
    return np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))


def _pitch(*quaternion: np.ndarray) -> np.ndarray:
    x, y, z, w = unit(*quaternion)
    return np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0))


def _yaw(*quaternion: np.ndarray) -> np.ndarray:
    x, y, z, w = unit(*quaternion)
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


ANGLES: dict[str, Callable[..., np.ndarray]] = {"roll": _roll, "pitch": _pitch, "yaw": _yaw}
"""Tait–Bryan angles (z-y-x) of quaternions (x, y, z, w)."""


def _nanoseconds(seconds: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Moments, as numpy keeps them."""
    whole = np.asarray(seconds, dtype=np.int64) * 1_000_000_000
    return (whole + np.asarray(rest, dtype=np.int64)).astype("datetime64[ns]")
