"""Stretches of long logs, where there are too few logs to hold some of them out."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from offmap.data import Dataset, Trajectory

_DRIVES = 6  # of which long recordings are cut to have at least so many stretches,
_FEWEST = 3  # of which one can be held out at all
_SHORTEST, _LONGEST = 20, 50  # steps of each


def in_stretches(dataset: Dataset, source: str) -> Dataset:
    """The data with long trajectories cut, where a source has too few to hold some out."""
    own = [log for log in dataset if log.source == source]
    if len(own) >= _DRIVES:
        return dataset
    steps = int(np.clip(sum(log.T for log in own) // _DRIVES, _SHORTEST, _LONGEST))
    parts = [part for log in dataset for part in _cut(log, steps)]
    return replace(dataset, trajectories=tuple(parts))


def several(dataset: Dataset, source: str) -> bool:
    """Whether a source has trajectories enough to hold some out."""
    return sum(log.source == source for log in dataset) >= _FEWEST


def _cut(log: Trajectory, steps: int) -> list[Trajectory]:
    ends = np.linspace(0, log.T, max(1, log.T // steps) + 1).astype(int)
    rest = ("xdot", "middle", "seen")
    parts = []
    for a, b in pairwise(ends):
        own = {name: getattr(log, name) for name in rest}
        own = {name: None if rows is None else rows[a:b] for name, rows in own.items()}
        parts.append(replace(log, x=log.x[a : b + 1], u=log.u[a:b], **own))
    return parts
