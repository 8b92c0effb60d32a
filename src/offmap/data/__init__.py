"""Trajectories and datasets: what was logged, checked, named and aligned for fitting."""

from offmap.data.alignment import Alignment, Run, align
from offmap.data.dataset import Dataset, Samples
from offmap.data.derivatives import (
    commands_in_time,
    finite_difference,
    half_way,
    local_slopes,
    low_pass,
    slope_bandwidth,
    smooth,
)
from offmap.data.history import complete_history, history_names, stack_history
from offmap.data.reading import find_files, read
from offmap.data.streams import Fault, Stream
from offmap.data.trajectory import Trajectory

__all__ = [
    "Alignment",
    "Dataset",
    "Fault",
    "Run",
    "Samples",
    "Stream",
    "Trajectory",
    "align",
    "commands_in_time",
    "complete_history",
    "find_files",
    "finite_difference",
    "half_way",
    "history_names",
    "local_slopes",
    "low_pass",
    "read",
    "slope_bandwidth",
    "smooth",
    "stack_history",
]
