"""One recorded run of a robot: its states, its controls and, where measured, its derivatives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

__all__ = ["Trajectory", "finite_difference"]


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Log of T controls applied every `dt` seconds, with the T or T + 1 states they met.

    Arrays, jax arrays and nested lists are copied into read-only float64 arrays.

    Attributes:
        x: States, one row per time step.
        u: Controls, one row per time step.
        dt: Seconds between rows.
        xdot: Measured state derivatives; when None, forward differences of `x` stand in.
        source: Where the log comes from, for example "offline" or "online".
        middle: States at which xdot was taken, one for each control, where these are not the first
            states of the steps but those half-way.
        seen: Controls that xdot is due to, one for each control, where it was averaged over more
            than its step.
    """

    x: Float[np.ndarray, "states n"]
    u: Float[np.ndarray, "T m"]
    dt: float = 0.1
    xdot: Float[np.ndarray, "derivatives n"] | None = None
    source: str = "offline"
    middle: Float[np.ndarray, "T n"] | None = None
    seen: Float[np.ndarray, "T m"] | None = None

    # Any input may arrive here and is refused with a ValueError, also where tests check types.
    __no_type_check__ = True

    if TYPE_CHECKING:  # what the constructor accepts is wider than what it stores

        def __init__(
            self,
            x: ArrayLike,
            u: ArrayLike,
            dt: float = 0.1,
            xdot: ArrayLike | None = None,
            source: str = "offline",
            middle: ArrayLike | None = None,
            seen: ArrayLike | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        store = {"x": as_table(self.x, "x"), "u": as_table(self.u, "u"), "dt": as_dt(self.dt)}
        for name in ("xdot", "middle", "seen"):
            if getattr(self, name) is not None:
                store[name] = as_table(getattr(self, name), name)
        for name, value in store.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.source, str) or not self.source.strip():
            raise ValueError(
                f"source must be a non-empty string; received {self.source!r}; "
                'name where the log comes from, such as "offline" or "online"'
            )
        _check_lengths(self.x, self.u, self.xdot)
        _check_where(self)

    @property
    def T(self) -> int:
        """Number of controls."""
        return int(self.u.shape[0])

    @property
    def n(self) -> int:
        """Number of state columns."""
        return int(self.x.shape[1])

    @property
    def m(self) -> int:
        """Number of control columns."""
        return int(self.u.shape[1])

    def samples(
        self, angles: Sequence[int] = ()
    ) -> tuple[
        Float[np.ndarray, "samples n"],
        Float[np.ndarray, "samples m"],
        Float[np.ndarray, "samples n"],
    ]:
        """Return states, controls and derivatives row by row, all of one length.

        Measured derivatives give T samples. Without them forward differences give T samples from
        T + 1 states and T - 1 from T states, whose last control is dropped. States come back as
        they were logged, wrapped or not; those half-way, and controls averaged as the derivatives
        were, stand in where the trajectory has them.

        Args:
            angles: State columns in radians to unwrap before differencing.
        """
        if self.xdot is None:
            xdot = finite_difference(self.x, self.dt, angles)
            xdot.setflags(write=False)
        else:
            xdot = self.xdot[: self.T]
        count = min(self.T, xdot.shape[0])
        x = self.x if self.middle is None else self.middle
        u = self.u if self.seen is None else self.seen
        return x[:count], u[:count], xdot[:count]

    def __repr__(self) -> str:
        derivatives = "estimated" if self.xdot is None else "measured"
        derivatives += "" if self.middle is None else " half-way"
        return (
            f"Trajectory(T={self.T}, n={self.n}, m={self.m}, dt={self.dt:g}, "
            f"xdot {derivatives}, source={self.source!r})"
        )


def _check_where(trajectory: Trajectory) -> None:
    """Half-way states and averaged controls belong to derivatives, row by row."""
    for name, width in (("middle", trajectory.n), ("seen", trajectory.m)):
        array = getattr(trajectory, name)
        if array is None:
            continue
        if array.shape != (trajectory.T, width):
            raise ValueError(
                f"{name} must have a row for each of the T controls, and {width} columns; received "
                f"shape {array.shape} and T = {trajectory.T}; cut them to the same time span"
            )
        if trajectory.xdot is None:
            raise ValueError(
                f"{name} says what measured derivatives belong to; received {name} without xdot; "
                f"give xdot, or leave {name} out"
            )


def finite_difference(
    x: ArrayLike, dt: float, angles: Sequence[int] = ()
) -> Float[np.ndarray, "..."]:
    """Return the forward differences (x[t+1] - x[t]) / dt along the first axis, one row fewer.

    Under Euler integration x[t+1] = x[t] + dt f(x[t], u[t]) they are f itself, not an estimate.

    Args:
        x: Series with time along the first axis.
        dt: Seconds between rows.
        angles: Columns in radians to unwrap first, so that a jump from pi to -pi counts as none.
    """
    series = unwrap(as_floats(x, "x"), angles)
    if series.ndim == 0 or series.shape[0] < 2:
        raise ValueError(
            f"forward differences need at least 2 rows; received shape {series.shape}; "
            "give a longer series or measured derivatives"
        )
    return np.diff(series, axis=0) / as_dt(dt)


def unwrap(x: Float[np.ndarray, "..."], angles: Sequence[int]) -> Float[np.ndarray, "..."]:
    """Return `x` with the 2 pi jumps along time removed from the columns `angles`."""
    if len(angles) == 0:
        return x
    columns = list(angles)
    width = x.shape[1] if x.ndim == 2 else 0
    if not all(0 <= column < width for column in columns):
        raise ValueError(
            f"angles must be column indices of a 2-D series, from 0 to {width - 1}; "
            f"received {columns} for shape {x.shape}; name existing columns"
        )
    unwrapped = np.array(x)
    unwrapped[:, columns] = np.unwrap(x[:, columns], axis=0)
    return unwrapped


def as_floats(values: object, name: str) -> Float[np.ndarray, "..."]:
    """Return a float64 copy of `values`, or say which entries are not finite real numbers."""
    try:
        raw = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray):
            raw = np.ma.filled(values.astype(np.float64), np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a rectangular array of numbers; received a {type(values).__name__} "
            f"that numpy cannot convert ({error}); give rows of equal length"
        ) from error
    if raw.dtype.kind not in "biuf":
        kind = "complex" if raw.dtype.kind == "c" else "non-numeric"
        raise ValueError(
            f"{name} must hold real numbers; received {kind} dtype {raw.dtype}; "
            "convert it to float64 first"
        )
    array = np.array(raw, dtype=np.float64, order="C")
    _check_finite(array, name)
    return array


def as_table(values: object, name: str) -> Float[np.ndarray, "rows columns"]:
    """Return a read-only float64 copy of `values` with time down and one column per quantity."""
    array = as_floats(values, name)
    if array.ndim != 2:
        remedy = (
            "give one Trajectory per run"
            if array.ndim > 2
            else "give one row per time step, even for a single column: shape (T, 1)"
        )
        raise ValueError(
            f"{name} must be 2-D (time, columns); received {array.ndim}-D with shape "
            f"{array.shape}; {remedy}"
        )
    if array.size == 0:
        raise ValueError(
            f"{name} must not be empty; received shape {array.shape}; "
            "give at least one row and one column, or leave this trajectory out"
        )
    array.setflags(write=False)
    return array


def as_dt(dt: Any) -> float:
    """Return the time step as a float, or say why it is not one."""
    try:
        seconds = math.nan if isinstance(dt, (str, bytes, bool)) else float(dt)
    except (TypeError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise ValueError(
            f"dt must be a positive, finite number of seconds; received {dt!r}; "
            "give the sampling period, such as 0.1 for 10 Hz"
        )
    return seconds


def _check_finite(array: Float[np.ndarray, "..."], name: str) -> None:
    bad = ~np.isfinite(array)
    if not bad.any():
        return
    columns = bad.reshape(bad.shape[0], -1).T if bad.ndim > 0 else bad.reshape(1, 1)
    found = ", ".join(
        f"column {index}: {int(column.sum())} (first at row {int(column.argmax())})"
        for index, column in enumerate(columns)
        if column.any()
    )
    raise ValueError(
        f"{name} must be finite; received NaN or inf in {found}; "
        "cut those rows out or split the trajectory there"
    )


def _check_lengths(
    x: Float[np.ndarray, "states n"],
    u: Float[np.ndarray, "T m"],
    xdot: Float[np.ndarray, "derivatives columns"] | None,
) -> None:
    T = u.shape[0]
    for name, array in (("x", x), ("xdot", xdot)):
        if array is not None and array.shape[0] not in (T, T + 1):
            raise ValueError(
                f"{name} must have T or T + 1 rows for T controls; received {array.shape[0]} rows "
                f"of {name} and {T} of u; cut them to the same time span"
            )
    if xdot is not None and xdot.shape[1] != x.shape[1]:
        raise ValueError(
            f"xdot must have one column per state; received {xdot.shape[1]} columns for "
            f"{x.shape[1]} states; give the derivative of every state or xdot=None"
        )
    if xdot is None and x.shape[0] < 2:
        raise ValueError(
            "a trajectory must give at least one sample; received 1 state and no xdot, which "
            "leaves nothing to difference; give a second state or the measured xdot"
        )
