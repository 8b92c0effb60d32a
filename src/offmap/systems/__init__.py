"""Simulated robots with their true dynamics f, true constraint Γ and sampling boxes."""

from offmap.systems.base import Box, System
from offmap.systems.quadrotor import planar_quadrotor
from offmap.systems.unicycle import unicycle

__all__ = ["Box", "System", "planar_quadrotor", "unicycle"]
