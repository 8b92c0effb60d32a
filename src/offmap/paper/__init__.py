"""The paper's simulated experiments: protocols, variants, tables and figures."""

from offmap.paper.experiment import Result, reproduce, stage_count
from offmap.paper.protocol import EXPERIMENTS, ROWS, Experiment, Trial

__all__ = ["EXPERIMENTS", "ROWS", "Experiment", "Result", "Trial", "reproduce", "stage_count"]
