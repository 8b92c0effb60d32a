"""What the examples on recordings share: where the recordings lie, and how they become data.

The recordings are not part of this repository: `../shared/data` beside it, or OFFMAP_SHARED/data.
OFFMAP_SMALL=1 makes everything small, so that tests can run the examples.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

import offmap
from offmap.data import Stream, align

SMALL = bool(os.environ.get("OFFMAP_SMALL"))


def recordings(name: str) -> Path:
    """The folder of a robot's recordings."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("OFFMAP_SHARED", beside)) / "data" / name
    if not folder.is_dir():
        raise SystemExit(f"The recordings {name} are not here; set OFFMAP_SHARED to their place.")
    return folder


def smoothed(
    time: np.ndarray,
    states: np.ndarray,
    controls: np.ndarray,
    names: tuple[list[str], list[str]],
    *,
    dt: float,
    bandwidth: float,
) -> list[offmap.Trajectory]:
    """States, derivatives and mean controls on a grid of dt, by local cubics of one bandwidth."""
    measured = Stream(time, states, tuple(names[0]))
    known = np.all(np.isfinite(controls), axis=1)
    commands = Stream(time[known], controls[known], tuple(names[1]), hold=True)
    found = align(measured, commands, dt=dt, bandwidth=bandwidth, lag=0.0)
    return [run.samples() for run in found.runs if run.T >= 10]


def config() -> offmap.Config:
    """For recordings: whole trajectories are held out, and kernels are straight.

    Made small, only the constraint is searched for; where it is not a short equation, it is left.
    """
    full = offmap.Config.preset("default")
    full = replace(full, hold_out="trajectories", kernels=("linear", "bilinear"))
    if not SMALL:
        return full
    return replace(
        full,
        kernels=("linear",),
        slope_check=None,
        sparsify=False,
        tangent=False,
        discovery_points=300,
        dynamics=replace(full.dynamics, iterations=40, hyper_points=300),
    )
