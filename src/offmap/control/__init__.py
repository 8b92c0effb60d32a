"""Use a model in a loop: model predictive control by sampled plans."""

from offmap.control.mppi import MPPI, Plan

__all__ = ["MPPI", "Plan"]
