"""Simulated robots with their true dynamics f, true constraint Γ and sampling boxes."""

from offmap.systems.base import Box, System
from offmap.systems.quadrotor import planar_quadrotor
from offmap.systems.quadrotor3d import quadrotor3d
from offmap.systems.unicycle import unicycle
from offmap.systems.wheeled import (
    bicycle,
    rolling_disk,
    slipping_unicycle,
    tanh_unicycle,
    trailer,
)

__all__ = [
    "Box",
    "System",
    "bicycle",
    "planar_quadrotor",
    "quadrotor3d",
    "rolling_disk",
    "slipping_unicycle",
    "tanh_unicycle",
    "trailer",
    "unicycle",
]
