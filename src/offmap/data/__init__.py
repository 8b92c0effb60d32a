"""Trajectories and datasets: what was logged, checked, named and aligned for fitting."""

from offmap.data.dataset import Dataset, Samples
from offmap.data.derivatives import finite_difference, low_pass, smooth
from offmap.data.trajectory import Trajectory

__all__ = ["Dataset", "Samples", "Trajectory", "finite_difference", "low_pass", "smooth"]
