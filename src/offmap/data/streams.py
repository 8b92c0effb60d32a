"""What a sensor or a controller logged on its own clock, cleaned: every fault is reported."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

__all__ = ["Fault", "Stream"]

MOST_DROPPED = 0.05  # share of rows that may be unusable before the whole stream is refused
GAP = 10.0  # median intervals between measurements that count as a gap
HOLD_GAP = 30.0  # and between set points, which hold
_WINDOW = 5  # rows to either side in the running median that shows outliers
_OUTLIER = 12.0  # robust standard deviations
_JUMP = 8.0  # times the 99th percentile of steps


@dataclass(frozen=True)
class Fault:
    """Something wrong in a recording, and what was done about it."""

    time: float
    """When, on the recording's clock."""
    what: str

    def __str__(self) -> str:
        return f"{self.time:.2f} s: {self.what}"


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """Rows of numbers with the time of each, on a clock that may be irregular.

    Rows with NaN, rows whose clock does not advance and single outliers are dropped, and reported
    in `faults`; a stream with more than 5 % of such rows is refused. Angles are unwrapped.

    Attributes:
        time: Seconds, one for each row.
        values: One row per time.
        names: One name per column, for messages.
        angles: Columns that are angles in radians.
        hold: Values are set points that hold until the next row (commands): these may step, so
            nothing in them counts as an outlier or a jump.
        faults: What was dropped, and why.
    """

    time: Float[np.ndarray, " N"]
    values: Float[np.ndarray, "N k"]
    names: tuple[str, ...]
    angles: tuple[int, ...] = ()
    hold: bool = False
    faults: tuple[Fault, ...] = field(default=(), init=False)

    # Any input may arrive here and is refused with a ValueError, also where tests check types.
    __no_type_check__ = True

    if TYPE_CHECKING:  # what the constructor accepts is wider than what it stores

        def __init__(
            self,
            time: ArrayLike,
            values: ArrayLike,
            names: Sequence[str],
            angles: Sequence[int] = (),
            hold: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        names = tuple(self.names)
        time, values = _as_rows(self.time, self.values, names)
        faults: list[Fault] = []
        time, values = _drop(np.isfinite(time), "rows without a time", time, values, faults)
        finite = np.isfinite(values).all(axis=1)
        time, values = _drop(finite, "rows with NaN or inf", time, values, faults)
        time, values = _drop(_advancing(time), _BACKWARDS, time, values, faults)
        _check_length(time, names)
        columns = list(self.angles)
        values[:, columns] = np.unwrap(values[:, columns], axis=0)
        if not self.hold:
            time, values = _drop(~_outliers(values), "outliers", time, values, faults)
        for name, value in (
            ("time", time),
            ("values", values),
            ("names", names),
            ("angles", tuple(columns)),
            ("faults", tuple(faults)),
        ):
            object.__setattr__(self, name, value)

    @property
    def interval(self) -> float:
        """Median seconds between rows."""
        return float(np.median(np.diff(self.time)))

    def until(self, time: float) -> "Stream":
        """The rows up to a time."""
        early = self.time <= time
        return Stream(self.time[early], self.values[early], self.names, self.angles, self.hold)

    def breaks(self) -> list[Fault]:
        """Gaps and jumps, across which nothing may be interpolated."""
        steps = np.diff(self.time)
        longest = (HOLD_GAP if self.hold else GAP) * self.interval
        found = {
            int(i): f"gap of {steps[i]:.3g} s in {', '.join(self.names)}"
            for i in np.flatnonzero(steps > longest)
        }
        if not self.hold:
            for i, column in zip(*np.nonzero(_jumps(self.time, self.values)), strict=True):
                size = self.values[i + 1, column] - self.values[i, column]
                found.setdefault(int(i), f"{self.names[column]} jumps by {size:.3g}")
        middle = (self.time[:-1] + self.time[1:]) / 2
        return [Fault(float(middle[i]), found[i]) for i in sorted(found)]

    def segments(self) -> list[slice]:
        """Rows between breaks."""
        cuts = np.searchsorted(self.time, [fault.time for fault in self.breaks()])
        edges = [0, *cuts, len(self.time)]
        return [slice(a, b) for a, b in pairwise(edges) if b > a]

    def __repr__(self) -> str:
        span = self.time[-1] - self.time[0]
        return (
            f"Stream({', '.join(self.names)}: {len(self.time)} rows in {span:.1f} s, "
            f"{len(self.faults)} faults)"
        )


_BACKWARDS = "rows whose clock does not advance"


def _as_rows(time: Any, values: Any, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    clock = np.array(time, dtype=np.float64)
    table = np.array(values, dtype=np.float64)
    if clock.ndim != 1 or table.shape != (len(clock), len(names)):
        raise ValueError(
            f"a stream needs one time per row and one name per column; received times of shape "
            f"{clock.shape}, values of shape {table.shape} and {len(names)} names; check the order"
        )
    return clock, table


def _advancing(time: Float[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
    """Rows later than all rows before them."""
    latest = np.maximum.accumulate(time)
    return np.append(True, time[1:] > latest[:-1])


def _check_length(time: np.ndarray, names: tuple[str, ...]) -> None:
    if len(time) < 2 * _WINDOW:
        raise ValueError(
            f"a stream needs at least {2 * _WINDOW} usable rows; received {len(time)} of "
            f"{', '.join(names)}; give a longer recording"
        )


def _drop(
    keep: np.ndarray, what: str, time: np.ndarray, values: np.ndarray, faults: list[Fault]
) -> tuple[np.ndarray, np.ndarray]:
    bad = np.flatnonzero(~keep)
    if len(bad) > MOST_DROPPED * len(keep):
        raise ValueError(
            f"at most {MOST_DROPPED:.0%} of the rows of a stream may be unusable; received "
            f"{len(bad)} of {len(keep)} {what}, first at row {bad[0]}; repair the recording, or "
            f"cut it into parts and give them one by one"
        )
    if len(bad):
        faults.append(Fault(float(time[bad[0]]), f"{len(bad)} {what} dropped, first here"))
    return time[keep], values[keep]


def _outliers(values: Float[np.ndarray, "N k"]) -> Bool[np.ndarray, " N"]:
    """Rows far from the running median of their neighbours, though these agree."""
    padded = np.pad(values, ((_WINDOW, _WINDOW), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _WINDOW + 1, axis=0)
    away = np.abs(values - np.median(windows, axis=-1))
    # Steady motion leaves a residual at the ends of the window, so the usual step counts too.
    usual = 1.4826 * np.median(away, axis=0) + np.quantile(np.abs(np.diff(values, axis=0)), 0.9, 0)
    return np.any(away > _OUTLIER * np.where(usual > 0, usual, np.inf), axis=1)


def _jumps(
    time: Float[np.ndarray, " N"], values: Float[np.ndarray, "N k"]
) -> Bool[np.ndarray, "M k"]:
    """Steps far larger than all but the largest hundredth, for the time they took."""
    interval = np.diff(time)
    longer = np.maximum(interval / np.median(interval), 1.0)[:, None]
    steps = np.abs(np.diff(values, axis=0)) / longer
    usual = np.quantile(steps, 0.99, axis=0)
    return steps > _JUMP * np.where(usual > 0, usual, np.inf)
