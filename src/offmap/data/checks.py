"""Is this column a measurement, and does this clock run forward?"""

import numpy as np
from jaxtyping import Float

from offmap.data.formats.stamps import odd_step

LARGEST = 1e15
"""Beyond any measurement: a placeholder for "missing", or a time stamp."""


def check_numbers(where: str, columns: dict[str, np.ndarray], largest: float = LARGEST) -> None:
    """Refuse values that are no measurements."""
    for name, column in columns.items():
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            raise ValueError(
                f"Columns must be finite; {where} has {bad.size} missing, NaN or infinite values "
                f"in {name!r}, first in row {bad[0]} of {len(column)}. Fill or cut these rows."
            )
        huge = np.flatnonzero(np.abs(column) > largest)
        if huge.size:
            raise ValueError(
                f"Columns must hold measurements; {where} has {column[huge[0]]:g} in {name!r}, row "
                f"{huge[0]}. If this marks a missing value, cut these rows; else change the unit."
            )


def check_clock(where: str, clock: Float[np.ndarray, " N"]) -> None:
    """Refuse a clock that does not run forward."""
    steps = np.diff(clock)
    if np.any(steps <= 0):
        row = int(np.argmax(steps <= 0)) + 1
        same = steps[row - 1] == 0
        raise ValueError(
            f"Time must increase; in {where} row {row} "
            + ("repeats the time of the row before" if same else "goes back in time")
            + f" ({clock[row]:.9g} after {clock[row - 1]:.9g}). "
            + (
                "Remove one of them."
                if same
                else "Sort the rows; or name the column that tells the runs apart as `traj`."
            )
        )


def check_unit(where: str, clock: Float[np.ndarray, " N"]) -> None:
    """Refuse a clock that seems to count other things than seconds, for which none was named."""
    step = odd_step(clock)
    if step is not None:
        raise ValueError(
            f"Time is in seconds; the rows of {where} would be {step:g} s apart. Give time_unit "
            f'"ms", "us" or "ns" (--time-unit); or, if this is right, "s".'
        )
