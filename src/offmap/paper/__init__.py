"""The paper's simulated experiments: protocols, variants, tables and figures."""

from offmap.paper.experiment import Result
from offmap.paper.protocol import EXPERIMENTS, ROWS, Experiment, Trial
from offmap.paper.runs import reproduce
from offmap.paper.study import SimulatedStudy

__all__ = [
    "EXPERIMENTS",
    "ROWS",
    "Experiment",
    "Result",
    "SimulatedStudy",
    "Trial",
    "reproduce",
]
