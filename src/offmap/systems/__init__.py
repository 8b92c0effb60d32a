"""Simulated robots with their true dynamics f, true constraint Γ and sampling boxes."""

from offmap.systems.base import Box, System
from offmap.systems.cart_pole import cart_pole
from offmap.systems.glider import glider
from offmap.systems.quadrotor import planar_quadrotor
from offmap.systems.quadrotor3d import quadrotor3d
from offmap.systems.unicycle import unicycle
from offmap.systems.wheeled import (
    bicycle,
    rolling_disk,
    slipping_unicycle,
    steered_car,
    tanh_unicycle,
    trailer,
    two_trailers,
)

__all__ = [
    "Box",
    "System",
    "bicycle",
    "cart_pole",
    "glider",
    "planar_quadrotor",
    "quadrotor3d",
    "rolling_disk",
    "slipping_unicycle",
    "steered_car",
    "tanh_unicycle",
    "trailer",
    "two_trailers",
    "unicycle",
]
