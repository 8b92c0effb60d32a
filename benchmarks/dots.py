"""Errors of many systems as dots: one panel for each level of noise, one column for each system."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LEAST, MOST = 1e-12, 1e5  # what is drawn lies between
OURS = {"marker": "o", "color": "#1f6f8b", "s": 30, "zorder": 4}
ORACLE = {"marker": "_", "color": "0.35", "s": 110, "zorder": 3}
OTHERS = (
    {"marker": "x", "color": "#c1553b", "s": 26},
    {"marker": "+", "color": "#d6a03d", "s": 36},
)

Error = Callable[[str, float, str], Sequence[float]]
"""Errors of a system at a level of noise by a model, such as one for each seed."""


def draw(
    path: Path,
    systems: Sequence[str],
    noises: Sequence[float],
    models: Mapping[str, tuple[str, Mapping[str, Any]]],
    error: Error,
    label: str,
    noise_of: str,
) -> None:
    """Draw every model's errors into a file; what does not fit is drawn at the margin."""
    figure = Figure(figsize=(1.2 + 2.9 * len(noises), 3.7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    for axes, noise in zip(panels, noises, strict=True):
        for model, (_, style) in models.items():
            points = [
                (place, min(max(value, LEAST), MOST))
                for place, system in enumerate(systems)
                for value in error(system, noise, model)
            ]
            if points:
                axes.scatter(*zip(*points, strict=True), **style)
        axes.set_yscale("log")
        axes.axhline(1.0, color="0.6", linewidth=1)
        axes.set_xlim(-0.6, len(systems) - 0.4)
        axes.set_xticks(range(len(systems)), systems, rotation=45, ha="right", fontsize=8)
        axes.set_title("no noise" if noise == 0 else f"{noise:.1%} {noise_of}", fontsize=9)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(label)
    for text, style in models.values():
        panels[0].scatter([], [], label=text, **style)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        fontsize=8,
        loc="outside upper center",
        ncols=len(models),
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
