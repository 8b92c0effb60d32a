"""The bench as a figure: how we compare with each peer, and how the cost of a fit grows."""

from pathlib import Path
from typing import Any

from offmap.bench.metrics import Outcome
from offmap.bench.run import Report


def draw(report: Report, directory: Path) -> Path:
    """Draw what was measured into DIR/bench.png and return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    timed = [outcome for outcome in report.outcomes if outcome.metric.unit in ("s", "µs")]
    growing = [outcome for outcome in report.outcomes if "exponent" in outcome.details]
    panels = bool(timed) + bool(growing)
    figure = Figure(figsize=(7.0 * max(panels, 1), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, max(panels, 1), squeeze=False)[0])
    if timed:
        _ratios(axes.pop(0), timed)
    if growing:
        _growth(axes.pop(0), growing)
    path = directory / "bench.png"
    figure.savefig(path, dpi=100)
    return path


def _ratios(axes: Any, outcomes: list[Outcome]) -> None:
    """One line of dots for each metric: every peer's time and the limit's, as multiples of ours."""
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.peers))
    heights = range(len(outcomes), 0, -1)
    for number, name in enumerate(names):
        points = [
            (1 / outcome.ratios[name], height)
            for outcome, height in zip(outcomes, heights, strict=True)
            if name in outcome.peers
        ]
        axes.scatter(*zip(*points, strict=True), label=name, s=28, color=f"C{number}", zorder=3)
    limits = [
        (1 / outcome.limit_ratio, height)
        for outcome, height in zip(outcomes, heights, strict=True)
        if outcome.limit_ratio is not None
    ]
    if limits:
        axes.scatter(*zip(*limits, strict=True), label="limit", marker="|", s=120, color="black")
    axes.axvline(1.0, color="0.4", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(list(heights), [outcome.metric.name for outcome in outcomes], fontsize=8)
    axes.set_ylim(0.4, len(outcomes) + 0.6)
    axes.set_xlabel("time ÷ ours (right of 1: slower than we are)")
    axes.grid(axis="x", color="0.9")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _growth(axes: Any, outcomes: list[Outcome]) -> None:
    """Seconds and peak memory of a fit over the number of samples."""
    runs = outcomes[0].details["runs"]
    sizes = [run["samples"] for run in runs]
    axes.loglog(sizes, [run["seconds"] for run in runs], "o-", color="C0", label="seconds")
    axes.loglog(sizes, [run["peak_mb"] for run in runs], "s-", color="C1", label="peak memory, MB")
    exponents = ", ".join(
        f"{o.metric.name.rpartition('/')[2]} {o.details['exponent']:.2f}" for o in outcomes
    )
    axes.set_title(f"exponents: {exponents}", fontsize=9)
    axes.set_xlabel("samples")
    axes.grid(which="both", color="0.9")
    axes.legend(fontsize=8)
