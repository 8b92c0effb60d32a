"""Flat figures of the page as Plotly specifications: plain dictionaries, drawn by the browser."""

from typing import Any

import numpy as np

from offmap.model import Model
from offmap.report.trials import HeldOut, state_error
from offmap.report.variants import MEANING, used_variant

# Okabe and Ito's palette: told apart by colour-blind readers too. Lines differ in dash as well.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
LINES = {
    "none": {"color": RED, "dash": "dash"},
    "soft": {"color": PURPLE, "dash": "longdash"},
    "projected": {"color": GREEN, "dash": "dashdot"},
    "tangent": {"color": BLUE, "dash": "solid"},
    "turned": {"color": BLUE, "dash": "solid"},
    "still": {"color": "#767676", "dash": "dot"},
}
_PATHS = 150  # most trajectories drawn
_POINTS = 200  # most points of each
_BINS = 8
_INVISIBLE = 1e-16  # errors below this cannot be told from zero in double precision

Figure = dict[str, Any]


def plane(model: Model) -> tuple[int, int]:
    """The two states in whose plane motions are drawn; equal where there is only one state.

    States that the dynamics ignore say where the robot is, not what it does: a map is made of
    them. Angles are left out where there are others.
    """
    dataset, kept = model.dataset, _kept(model)
    order = sorted(
        range(dataset.n),
        key=lambda i: (i in dataset.angle_indices, dataset.state_names[i] in kept, i),
    )
    return (order[0], order[min(1, dataset.n - 1)])


def paths(model: Model) -> Figure:
    """Measured trajectories in the plane, one colour for each source, a dot where each begins."""
    dataset, (a, b) = model.dataset, plane(model)
    traces: list[dict[str, Any]] = []
    colours = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
    for code, source in enumerate(dataset.sources):
        own = [t for t in dataset if t.source == source]
        chosen = own[:: -(-len(own) // _PATHS)]
        columns: tuple[list[Any], list[Any]] = ([], [])
        for trajectory in chosen:
            x = np.asarray(trajectory.x)[:: -(-len(trajectory.x) // _POINTS)]
            pair = (x[:, a], x[:, b]) if a != b else (np.arange(len(x)) * dataset.dt, x[:, a])
            for column, values in zip(columns, pair, strict=True):
                column += [*values, None]
        begins = [i + 1 for i, value in enumerate(columns[0][:-1]) if value is None]
        begins = [0, *begins]
        colour = colours[code % len(colours)]
        name = escape(source)
        traces += [
            _line(*columns, name, {"color": colour, "width": 1.4}, legendgroup=name),
            {
                "x": [columns[0][i] for i in begins],
                "y": [columns[1][i] for i in begins],
                "mode": "markers",
                "marker": {"color": colour, "size": 5},
                "name": name,
                "legendgroup": name,
                "showlegend": False,
                "hoverinfo": "skip",
            },
        ]
    names = dataset.state_names
    labels = (names[a], names[b]) if a != b else ("time (s)", names[a])
    layout = axes(*labels, equal=comparable(model), legend=len(dataset.sources) > 1)
    return {"data": traces, "layout": layout}


def horizon(model: Model, held_out: HeldOut) -> Figure:
    """Median error of held-out rollouts against time, and where most of them lie."""
    used, dt = used_variant(model), model.dataset.dt
    names = [*held_out.trials[0].predicted, "still"]
    longest = max(len(trial.window.x) for trial in held_out.trials)
    traces = []
    for name in names:
        errors = np.full((len(held_out.trials), longest), np.nan)
        for row, trial in zip(errors, held_out.trials, strict=True):
            row[: len(trial.window.x)] = state_error(
                model, trial, None if name == "still" else name
            )
        enough = np.sum(~np.isnan(errors), axis=0) >= max(2, len(errors) // 4)
        steps = np.flatnonzero(enough)[1:]
        with np.errstate(invalid="ignore"):  # between two diverged rollouts lies no number
            low, middle, high = np.nanquantile(errors[:, steps], [0.1, 0.5, 0.9], axis=0)
        if name == used:
            traces += _ribbon(steps * dt, _positive(low), _positive(high), LINES[name]["color"])
        style = LINES[name] | {"width": 3 if name == used else 2}
        traces.append(_line(steps * dt, _positive(middle), label(name, used), style))
    layout = axes("time ahead (s)", "error (spreads of the state)")
    layout["yaxis"] |= _log(traces)
    return {"data": traces, "layout": layout}


def distance(model: Model, held_out: HeldOut) -> Figure:
    """Median one-step error against the distance from the nearest sample known."""
    used, away = used_variant(model), held_out.distance
    edges = np.quantile(away, np.linspace(0, 1, _BINS + 1))
    bins = np.clip(np.searchsorted(edges, away, side="right") - 1, 0, _BINS - 1)
    filled = [k for k in range(_BINS) if np.sum(bins == k) > 0]
    centre = np.array([np.median(away[bins == k]) for k in filled])
    traces = []
    for name, errors in held_out.one_step.items():
        parts = [np.quantile(errors[bins == k], [0.1, 0.5, 0.9]) for k in filled]
        low, middle, high = np.array(parts).T
        if name == used:
            traces += _ribbon(centre, _positive(low), _positive(high), LINES[name]["color"])
        style = LINES[name] | {"width": 3 if name == used else 2}
        trace = _line(centre, _positive(middle), label(name, used), style)
        traces.append(trace | {"mode": "lines+markers", "marker": {"size": 7}})
    layout = axes("distance from known samples", "one-step error (spreads of x')")
    layout["yaxis"] |= _log(traces)
    return {"data": traces, "layout": layout}


def axes(x: str, y: str, legend: bool = False, equal: bool = False) -> dict[str, Any]:
    """A quiet layout with these axis titles."""
    layout: dict[str, Any] = {
        "xaxis": _AXIS | {"title": {"text": escape(x), "standoff": 6}},
        "yaxis": _AXIS | {"title": {"text": escape(y), "standoff": 6}},
        "showlegend": legend,
    }
    if equal:
        layout["yaxis"] |= {"scaleanchor": "x", "constrain": "domain"}
        layout["xaxis"] |= {"constrain": "domain"}
    return layout


def label(variant: str, used: str) -> str:
    """A variant's name in a legend."""
    text = MEANING.get(variant, "standing still")
    return f"{text} (this model)" if variant == used else text


def escape(text: str) -> str:
    """A name as Plotly shows it: its labels are a small HTML of their own."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_AXIS = {"gridcolor": "#E3E6EA", "zerolinecolor": "#C9CED4", "automargin": True}


def _kept(model: Model) -> set[str]:
    """Inputs that the dynamics depend on, along the constraint where they are learned there."""
    return set(model.predictor.dynamics.reduction.names)


def comparable(model: Model) -> bool:
    """Whether the plane's two states may share a scale: both ignored, and of similar extent."""
    names, kept = model.dataset.state_names, _kept(model)
    a, b = plane(model)
    extent = np.ptp(model.dataset.samples().x[:, [a, b]], axis=0)
    ignored = names[a] not in kept and names[b] not in kept
    return a != b and ignored and bool(extent.max() < 3 * extent.min())


def _line(x: Any, y: Any, name: str, style: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"x": x, "y": y, "mode": "lines", "name": name, "line": style, **more}


def _ribbon(x: Any, low: Any, high: Any, colour: str) -> list[dict[str, Any]]:
    """80 % of the cases."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    rgb = ", ".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({rgb}, 0.18)"}
    return [{"x": x, "y": low, **edge}, {"x": x, "y": high, **edge, **fill}]


def _log(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """A logarithmic axis with a tick at no more than six powers of ten."""
    values = np.concatenate([np.asarray(trace["y"], float) for trace in traces])
    values = np.log10(values[np.isfinite(values)])
    low, high = (np.floor(values.min()), np.ceil(values.max())) if values.size else (0.0, 1.0)
    step = int(max(1, np.ceil((high - low) / 6)))
    span = [low - 0.1, max(high, low + 1) + 0.1]
    return {"type": "log", "exponentformat": "power", "dtick": step, "range": span}


def _positive(values: np.ndarray) -> np.ndarray:
    """Values for a logarithmic axis."""
    return np.where(np.isfinite(values), np.maximum(values, _INVISIBLE), np.nan)
