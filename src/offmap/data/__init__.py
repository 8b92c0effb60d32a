"""Trajectories and datasets: what was logged, checked, named and aligned for fitting."""

from offmap.data.alignment import Alignment, Run, align
from offmap.data.dataset import Dataset, Samples
from offmap.data.derivatives import finite_difference, low_pass, smooth
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
    "complete_history",
    "find_files",
    "finite_difference",
    "history_names",
    "low_pass",
    "read",
    "smooth",
    "stack_history",
]
