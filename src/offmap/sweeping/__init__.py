"""Sweeps: many independent cases over the cores of one machine or the machines of a cluster."""

from offmap.sweeping.driver import Folder, sweep
from offmap.sweeping.workers import Engine, prepare_process

__all__ = ["Engine", "Folder", "prepare_process", "sweep"]
