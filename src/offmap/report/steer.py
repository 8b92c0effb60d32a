"""The part of the page in which a reader steers the model: its data and its controls."""

from html import escape
from typing import Any

import numpy as np

from offmap.calls import at_each
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.report.export import NotExportable, export_variants
from offmap.report.figures import LINES, comparable, label, plane
from offmap.report.trials import HeldOut, spread
from offmap.report.variants import SHORT, given, used_variant, variants

POINTS = 1000
"""Most samples a page carries: with more, a rollout in the browser lags behind the hand."""
_REPLAYS = 8
_STEPS = (60, 200)  # at first, at most
_BEYOND = 3.0  # of the data's range, to the start that lies off the map


def carried(model: Model) -> tuple[dict[str, Predictor], float]:
    """The variants a page can carry, and how far thinning moves x' (in spreads; 0 without)."""
    samples = model.dataset.samples()
    full = variants(model)
    if len(samples) <= POINTS:
        return full, 0.0
    rows = np.sort(np.random.default_rng(0).permutation(len(samples))[:POINTS])
    thin = given(model, rows)
    used = used_variant(model)
    rest = np.setdiff1d(np.arange(len(samples)), rows)[:500]
    whole, part = (
        np.asarray(at_each(predictor, samples.x[rest], samples.u[rest]))
        for predictor in (full[used], thin[used])
    )
    moved = part - whole
    return thin, float(np.sqrt(np.mean((moved / spread(samples.xdot)) ** 2)))


def steering(model: Model, held_out: HeldOut) -> tuple[dict[str, Any] | None, str]:
    """Data of the steered rollout, or None, and its HTML or why there is none."""
    found, moved = carried(model)
    try:
        predictors = export_variants(found)
    except NotExportable as reason:
        return None, f"<p class='notice'>{escape(str(reason))}</p>"
    dataset, samples, used = model.dataset, model.dataset.samples(), used_variant(model)
    inputs = np.concatenate([samples.x, samples.u], axis=1)
    kept = model.predictor.dynamics.reduction.names
    data = {
        "predictors": predictors,
        "variants": [
            {"id": v, "label": label(v, used), "short": SHORT[v], "line": LINES[v]} for v in found
        ],
        "used": used,
        "constrained": len(found) > 1,
        "dt": dataset.dt,
        "integrator": model.integrator,
        "states": list(dataset.state_names),
        "controls": list(dataset.control_names),
        "angles": list(dataset.angle_indices),
        "ranges": np.stack([inputs.min(axis=0), inputs.max(axis=0)], axis=1),
        "watched": [i for i, name in enumerate(dataset.input_names) if name in kept],
        "plane": list(plane(model)),
        "equal": comparable(model),
        "starts": _starts(model, held_out),
    }
    thinned = (
        f"<p class='notice'>The page carries {POINTS} of {len(samples)} samples. At other samples "
        f"its x′ differs from the full model's by {moved:.1e} of the spread of x′.</p>"
        if len(samples) > POINTS
        else ""
    )
    return data, thinned + _panel(model, data)


def _starts(model: Model, held_out: HeldOut) -> list[dict[str, Any]]:
    windows = sorted((t.window for t in held_out.trials), key=lambda w: (w.trajectory, w.start))
    chosen = windows[:: -(-len(windows) // _REPLAYS)]
    starts: list[dict[str, Any]] = [
        {
            "label": f"trajectory {w.trajectory + 1}" + f", step {w.start}" * (w.start > 0),
            "x": w.x,
            "u": w.u,
        }
        for w in chosen
    ]
    x = model.dataset.samples().x
    kept = model.predictor.dynamics.reduction.names
    beyond = np.median(x, axis=0)
    for i, name in enumerate(model.dataset.state_names):
        if name not in kept and i not in model.dataset.angle_indices:
            beyond[i] += _BEYOND * np.ptp(x[:, i])
    if np.any(beyond != np.median(x, axis=0)):
        starts.append({"label": "far from all data", "x": beyond[None], "u": None})
    return starts


def _panel(model: Model, data: dict[str, Any]) -> str:
    dataset, u = model.dataset, model.dataset.samples().u
    options = "".join(f"<option>{escape(start['label'])}</option>" for start in data["starts"])
    fields = "".join(
        f"<label><code>{escape(name)}</code>"
        f"<input type='number' step='any' id='steer-x-{i}'></label>"
        for i, name in enumerate(dataset.state_names)
    )
    segments = "".join(
        f"<fieldset><legend>Controls, {half} half</legend>"
        f"{_sliders(dataset.control_names, u, s)}</fieldset>"
        for s, half in enumerate(("first", "second"))
    )
    a, b = data["plane"]
    across = _coordinates(dataset.state_names, a if a != b else -1)
    up = _coordinates(dataset.state_names, b)
    first, most = _STEPS
    heads = "".join(
        f"<th class='number'><code>{escape(n)}</code></th>" for n in dataset.state_names
    )
    broken = "<th class='number'>largest violation</th>" if data["constrained"] else ""
    return (
        "<div id='steer-panel' class='panel screen-only'><fieldset><legend>Start</legend>"
        f"<label class='wide'>from <select id='steer-start'>{options}</select></label>{fields}"
        "<label class='wide'><input type='checkbox' id='steer-replay'> replay the recorded controls"
        f"</label></fieldset>{segments}</div>"
        "<div class='panel screen-only'>"
        f"<label>steps <input type='range' id='steer-steps' min='2' max='{most}' value='{first}'>"
        "<output></output></label>"
        f"<label class='wide'>across <select id='steer-across'>{across}</select></label>"
        f"<label class='wide'>up <select id='steer-up'>{up}</select></label></div>"
        "<p id='steer-words' class='caption' aria-live='polite'></p>"
        "<figure><div id='steer-plot' class='plot'></div></figure>"
        "<div class='scroll'><table class='stacked'><thead><tr><th>where it ends</th>"
        f"{heads}{broken}</tr></thead><tbody id='steer-results'></tbody></table></div>"
    )


def _sliders(names: tuple[str, ...], u: np.ndarray, segment: int) -> str:
    sliders = []
    for j, name in enumerate(names):
        low, high = float(u[:, j].min()), float(u[:, j].max())
        # Half as far again as the data: far enough to leave them, near enough to aim.
        low, high, step = low - (high - low) / 4, high + (high - low) / 4, (high - low) / 100
        value = np.quantile(u[:, j], (0.75, 0.4)[segment])
        sliders.append(
            f"<label><code>{escape(name)}</code><input type='range' id='steer-u-{segment}-{j}' "
            f"min='{low:.6g}' max='{high:.6g}' step='{step:.3g}' value='{value:.6g}'>"
            "<output></output></label>"
        )
    return "".join(sliders)


def _coordinates(names: tuple[str, ...], chosen: int) -> str:
    options = [(-1, "time (s)"), *enumerate(names)]
    return "".join(
        f"<option value='{i}'{' selected' * (i == chosen)}>{escape(name)}</option>"
        for i, name in options
    )
