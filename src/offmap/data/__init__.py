"""Trajectories and datasets: what was logged, checked, named and aligned for fitting."""

from offmap.data.dataset import Dataset, Samples
from offmap.data.derivatives import finite_difference, low_pass, smooth
from offmap.data.reading import find_files, read
from offmap.data.trajectory import Trajectory

__all__ = [
    "Dataset",
    "Samples",
    "Trajectory",
    "find_files",
    "finite_difference",
    "low_pass",
    "read",
    "smooth",
]
