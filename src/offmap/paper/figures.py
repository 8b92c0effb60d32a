"""The paper's figures from a result: manifold, data sets, predicted trajectories, discoveries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from offmap.paper.experiment import Result, Stage

# Okabe and Ito's palette: told apart by colour-blind readers too.
_BLACK, _BLUE, _ORANGE, _GREEN, _RED, _GREY = (
    "#000000",
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#BBBBBB",
)
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "savefig.dpi": 160,
}


def draw(result: Result, directory: Path) -> list[Path]:
    """Draw every figure that the system has into the folder; returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{result.experiment.system.name}-{result.preset}"
    figures = {"data": datasets, "trajectories": trajectories, "discovery": discovery}
    if result.experiment.system.name == "unicycle":
        figures = {"manifold": manifold, **figures}
    paths = []
    with plt.rc_context(_STYLE):
        for name, function in figures.items():
            figure = function(result)
            paths.append(directory / f"{stem}-{name}.png")
            figure.savefig(paths[-1], bbox_inches="tight")
            plt.close(figure)
    return paths


def manifold(result: Result) -> Figure:
    """Fig. 1: the learned constraint manifold, and the velocities it allows at some poses."""
    gamma = result.stages[True].models["DGP"].constraints.gamma
    figure = plt.figure(figsize=(8.5, 3.8))
    space = figure.add_subplot(1, 2, 1, projection="3d")
    headings = np.linspace(-np.pi, np.pi, 121)
    speeds = np.linspace(-1.5, 1.5, 21)
    directions = _allowed_direction(gamma, headings)
    surface = speeds[:, None, None] * directions[None]
    space.plot_surface(
        surface[..., 0],
        surface[..., 1],
        np.broadcast_to(headings, surface.shape[:2]),
        facecolors=plt.colormaps["viridis"](
            np.broadcast_to((headings + np.pi) / (2 * np.pi), surface.shape[:2])
        ),
        linewidth=0,
        antialiased=True,
        alpha=0.85,
        rstride=1,
        cstride=1,
    )
    space.set(xlabel=r"$\dot p_x$", ylabel=r"$\dot p_y$", title="Learned constraint manifold")
    space.set_zlabel(r"$\theta$")
    plane = figure.add_subplot(1, 2, 2)
    poses = np.array(
        [(1, 1, 0.3), (4, 1.4, 0.3), (2.2, 3.4, 0.3), (5.4, 3.6, 1.3), (6.6, 1.2, 1.3)]
    )
    for (px, py, theta), direction in zip(
        poses, _allowed_direction(gamma, poses[:, 2]), strict=True
    ):
        line = np.outer([-1.0, 1.0], direction)
        plane.plot(px + line[:, 0], py + line[:, 1], ":", color=_RED, linewidth=2)
        plane.add_patch(Circle((px, py), 0.28, color=_GREY))
        plane.plot([px, px + 0.28 * np.cos(theta)], [py, py + 0.28 * np.sin(theta)], color=_BLACK)
    plane.set(
        xlabel=r"$p_x$",
        ylabel=r"$p_y$",
        title="Learned feasible velocities (red): equal for equal heading",
        aspect="equal",
    )
    return figure


def _allowed_direction(
    gamma: Callable[[np.ndarray], np.ndarray], headings: np.ndarray
) -> np.ndarray:
    """Unit (ṗx, ṗy) orthogonal to the learned G, pointing forward along increasing headings."""
    states = np.stack([np.zeros_like(headings), np.zeros_like(headings), headings], axis=-1)
    G = gamma(states)[:, 0, :2]
    direction = np.stack([G[:, 1], -G[:, 0]], axis=-1)
    return direction / np.linalg.norm(direction, axis=-1, keepdims=True)


def datasets(result: Result) -> Figure:
    """Fig. 2: offline data, one online trajectory and its tests, in the plane of motion."""
    figure, axes = plt.subplots(figsize=(4.6, 3.8))
    trial, _ = result.example
    offline = result.stages[True].offline
    for i, trajectory in enumerate(offline.trajectories[:400]):
        axes.plot(*trajectory.x[:, :2].T, color=_GREY, label=_once("offline", i), linewidth=0.8)
        axes.plot(*trajectory.x[0, :2], ".", color=_GREY, markersize=2)
    axes.plot(*trial.online.x[:, :2].T, color=_BLUE, linewidth=2, label="online")
    for i, states in enumerate(trial.test_states):
        axes.plot(*states[:, :2].T, color=_ORANGE, label=_once("test", i), linewidth=1.2)
    _plane(axes, result)
    axes.set_title("Data sets (OOD)")
    axes.legend()
    return figure


def trajectories(result: Result) -> Figure:
    """Fig. 4: test trajectories and their predictions, OOD, noiseless online data."""
    trial, predicted = result.example
    shown = {
        "GP/none": ("None (GP)", _GREEN),
        "DGP/ideal": ("Ideal (DGP)", _ORANGE),
        "DGP/approx": ("Approximate (DGP)", _RED),
    }
    figure, (plane, growth) = plt.subplots(1, 2, figsize=(9.2, 3.8))
    plane.plot(*trial.online.x[:, :2].T, color=_BLUE, linewidth=2, label="online data")
    for i, states in enumerate(trial.test_states):
        plane.plot(*states[:, :2].T, color=_BLACK, linewidth=2.5, label=_once("true", i))
    for column, (label, colour) in shown.items():
        for i, states in enumerate(predicted[column]):
            plane.plot(*states[:, :2].T, "--", color=colour, label=_once(label, i), linewidth=1.2)
        distance = result.growth["ood00"][column]
        time = np.arange(len(distance)) * result.experiment.system.dt
        growth.semilogy(time[1:], distance[1:], color=colour, label=label)
    _plane(plane, result)
    plane.set_title("Predicted trajectories (OOD, η = 0)")
    plane.legend(fontsize=8)
    growth.set(
        xlabel="time [s]", ylabel="mean distance to truth", title="Error growth, mean of all trials"
    )
    growth.legend(fontsize=8)
    figure.tight_layout()
    return figure


def discovery(result: Result) -> Figure:
    """What was found: weights of the inputs, the spectrum, and the inputs of each constraint."""
    stage = result.stages[True]
    figure, (bars, spectrum, rows) = plt.subplots(1, 3, figsize=(10.5, 2.9))
    _weights(bars, stage)
    model = stage.models["DGP"]
    values = np.maximum(model.constraints.singular_values, 1e-12)
    kept = len(values) - model.constraints.c
    order = np.arange(1, len(values) + 1)
    spectrum.semilogy(order[:kept], values[:kept], "o", color=_BLUE, label="motions")
    spectrum.semilogy(order[kept:], values[kept:], "s", color=_RED, label="constraints")
    spectrum.set(title=f"Singular values: c = {model.constraints.c}", xlabel="index")
    spectrum.set_xticks(order)
    spectrum.legend()
    if model.constraint_fit is not None and model.constraint_fit.pseudometrics:
        weights = np.stack([metric.weights for metric in model.constraint_fit.pseudometrics])
        rows.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        rows.set_xticks(range(weights.shape[1]), stage.offline.state_names)
        rows.set_yticks(range(len(weights)), [f"row {i + 1}" for i in range(len(weights))])
        rows.set_title("Inputs of each constraint")
    figure.tight_layout()
    return figure


def _weights(axes: Axes, stage: Stage) -> None:
    metric = stage.models["DGP"].pseudometric
    assert metric is not None
    kept = stage.models["DGP"].retained.dynamics
    colours = [_BLUE if name in kept else _GREY for name in metric.names]
    axes.bar(metric.names, metric.weights, color=colours)
    axes.axhline(
        stage.models["DGP"].config.pseudometric.threshold,
        color=_RED,
        linestyle=":",
        label="threshold",
    )
    axes.set(title="Pseudometric: inputs of the dynamics", ylabel="weight")
    axes.tick_params(axis="x", rotation=30)
    axes.legend()


def _plane(axes: Axes, result: Result) -> None:
    first, second = result.experiment.system.state_names[:2]
    axes.set(xlabel=first, ylabel=second)
    axes.set_aspect("equal", adjustable="datalim")  # a straight drive is no thin strip


def _once(label: str, index: int) -> str:
    """A legend entry for the first of many lines."""
    return label if index == 0 else "_" + label
