"""Angles that jump by a turn: those that are not declared, and those that are in degrees."""

import warnings
from collections.abc import Sequence

import numpy as np

from offmap.data.trajectory import Trajectory

TURN = 2.0 * np.pi
DEGREES = 360.0
_NEAR = 0.3 / TURN  # of a turn: by how much a jump may differ from it, and the most a usual step is
_TO_RADIANS = "multiply the column by pi / 180"


def warn_of_wrapped_columns(
    trajectories: Sequence[Trajectory], names: Sequence[str], angles: Sequence[str]
) -> None:
    """Warn of columns that jump by about a turn and are not declared as angles."""
    jumping = _jumping(trajectories)
    for column, name in enumerate(names):
        if name in angles:
            continue
        declare = f"declare it with angles=[{name!r}]"
        for turn, remedy in ((TURN, declare), (DEGREES, f"convert it to radians and {declare}")):
            found = _jumps(jumping, column, turn)
            if found:
                warnings.warn(
                    f"state {name!r} looks like a wrapped angle: {found}; {remedy}",
                    UserWarning,
                    stacklevel=4,
                )


def check_radians(
    trajectories: Sequence[Trajectory], names: Sequence[str], angles: Sequence[str]
) -> None:
    """Refuse declared angles that jump by 360, and warn of those that turn too fast."""
    jumping = _jumping(trajectories) if angles else {}
    for name in angles:
        column = names.index(name)
        found = _jumps(jumping, column, DEGREES)
        if found:
            raise ValueError(
                f"angles are in radians; state {name!r} seems to be in degrees: {found}; "
                f"{_TO_RADIANS}"
            )
        largest = max((float(steps[:, column].max()) for steps in jumping.values()), default=0.0)
        if largest > TURN * (1 + _NEAR):
            warnings.warn(
                f"angles are in radians; state {name!r} moves by up to {largest:.3g} in one step, "
                f"more than a turn; if it is in degrees, {_TO_RADIANS}",
                UserWarning,
                stacklevel=4,
            )


def _jumping(trajectories: Sequence[Trajectory]) -> dict[int, np.ndarray]:
    """Sizes of all steps, of the trajectories that have one of about a turn or more."""
    return {
        index: steps
        for index, trajectory in enumerate(trajectories)
        if (steps := np.abs(np.diff(trajectory.x, axis=0))).max(initial=0.0) > TURN * (1 - _NEAR)
    }


def _jumps(steps: dict[int, np.ndarray], column: int, turn: float) -> str:
    """Where a column jumps by about one turn while its usual steps are short; "" if nowhere."""
    for index, sizes in steps.items():
        jumps = np.abs(sizes[:, column] - turn) < _NEAR * turn
        if jumps.any() and np.median(sizes[:, column]) < _NEAR * turn:
            return (
                f"trajectory {index} jumps by about {'2 pi' if turn == TURN else f'{turn:g}'} at "
                f"{int(jumps.sum())} of {jumps.size} steps, first after row {int(jumps.argmax())}"
            )
    return ""
