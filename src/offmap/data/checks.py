"""Is this column a measurement, and does this clock run forward?"""

import numpy as np
from jaxtyping import Float

_LONGEST_STEP = 10.0  # seconds; a robot's log that seems slower is in other units
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


def check_clock(
    where: str, clock: Float[np.ndarray, " N"], time: str | None, dt: float | None
) -> None:
    """Refuse a clock that does not run forward, or counts other things than seconds."""
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
    typical = float(np.median(steps))
    if typical > _LONGEST_STEP and dt is None and time is not None:
        raise ValueError(
            f"Time is in seconds; the rows of {where} would be {typical:g} s apart. Give time_unit "
            f'"ms", "us" or "ns"; or, if this is right, dt={typical:g}.'
        )
