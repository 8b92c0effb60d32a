"""Which commands derivatives are due to: a delay, and a time over which they are averaged."""

from dataclasses import replace

import numpy as np

from offmap.data import Dataset, commands_in_time
from offmap.data.lag import unexplained

_TIMES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # steps of delay and width that are tried,
_SLOW = 0.6  # up to so many seconds
_GAIN = 0.95  # most of what is unexplained that another timing may leave
_POINTS = 2000


def best_timing(dataset: Dataset, source: str) -> tuple[int, int]:
    """Delay and width of the commands that best explain derivatives, in steps.

    A derivative that stands for half a second is not due to the command of one step, nor is one
    that follows its command by two steps. Regressed on that, the gain of every actuator comes out
    too small. (0, 0) where nothing else leaves clearly less, or derivatives were not told yet.
    """
    logs = [log for log in dataset if log.source == source and log.xdot is not None]
    if not logs:
        return (0, 0)
    steps = [k for k in _TIMES if k * dataset.dt <= _SLOW]
    own = replace(dataset, trajectories=tuple(logs))
    samples = own.samples()
    rows = np.arange(0, len(samples), max(1, len(samples) // _POINTS))

    def left(delay: int, width: int) -> float:
        moved = [commands_in_time(log, delay, width) for log in logs]
        u = replace(own, trajectories=tuple(moved)).samples().u
        x, xdot = samples.x[rows], samples.xdot[rows]
        return float(unexplained(x, dataset.angle_indices, [u[rows]], xdot)[0])

    found = {(delay, width): left(delay, width) for delay in steps for width in steps}
    at_once = {key: share for key, share in found.items() if key[0] == 0}
    best = min(at_once, key=lambda key: at_once[key])
    later = min(found, key=lambda key: found[key])
    best = later if found[later] < _GAIN * found[best] else best
    return best if found[best] < _GAIN * found[0, 0] else (0, 0)
