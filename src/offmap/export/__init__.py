"""Dynamics as a CasADi function: self-contained, differentiable, and C code if wanted."""

from offmap.export.function import to_casadi

__all__ = ["to_casadi"]
