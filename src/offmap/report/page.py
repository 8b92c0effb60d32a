"""Gather text, figures and the model into one HTML file."""

import json
import os
import tempfile
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

import jax
import numpy as np

from offmap.model import Model
from offmap.report.figures import LINES, distance, horizon, label, paths
from offmap.report.manifold import scenes
from offmap.report.steer import steering
from offmap.report.tables import coverage_table, pseudometric_bars, spectrum_bars
from offmap.report.trials import HeldOut, Trial, hold_out
from offmap.report.variants import used_variant, variants
from offmap.report.words import (
    accuracy,
    counted,
    coverage,
    discoveries,
    dropped_inputs,
    headline,
    how_held_out,
    number,
)
from offmap.types import Progress, silent

_DIGITS = 6  # of the numbers in figures; the model itself is carried in full


def write(
    model: Model, path: str | Path, *, title: str | None = None, progress: Progress = silent
) -> Path:
    """Write a page about the model: one HTML file, complete in itself, that opens offline.

    Args:
        model: a fitted model with its data.
        path: where to write; an existing file is replaced at once, never half.
        title: heading of the page; by default the names of the states.
        progress: called with a sentence as each stage begins.
    """
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ValueError(f"A page is written to a file; {path} {what}. Give a path like page.html.")
    plotly = _plotly()
    progress("predicting held-out trajectories")
    held_out = hold_out(model)
    progress("drawing")
    spaces = scenes(model)
    steer, panel = steering(model, held_out)
    sections = _sections(model, held_out, spaces, panel)
    data = {
        "figures": {
            "paths": paths(model),
            "horizon": horizon(model, held_out),
            "distance": distance(model, held_out),
        },
        "scenes": spaces,
        "rollouts": _rollouts(model, held_out),
        "steer": steer,
    }
    text = Template(_asset("page.html")).substitute(
        version=_version(),
        title=escape(title or f"Learned dynamics of {', '.join(model.dataset.state_names)}"),
        headline=escape(headline(model)),
        facts=_facts(model, held_out),
        nav="".join(f"<a href='#{key}'>{head}</a>" for key, head, _ in sections),
        sections="".join(
            f"<section id='{key}'><h2>{head}</h2>{body}</section>" for key, head, body in sections
        ),
        css=_asset("page.css"),
        plotly=plotly,
        data=_json(data),
        predictor=_asset("predictor.js"),
        script=_asset("page.js"),
        steer=_asset("steer.js"),
    )
    _replace(path, text)
    return path


def _sections(
    model: Model, held_out: HeldOut, spaces: list[dict[str, Any]], panel: str
) -> list[tuple[str, str, str]]:
    """Anchor, heading and HTML of each section."""
    return [
        ("found", "What was discovered", "".join(f"<p>{p}</p>" for p in discoveries(model))),
        ("data", "The data", _data(model)),
        ("inputs", "Which inputs matter", _inputs(model)),
        ("constraint", "What it cannot do", spectrum_bars(model) + _spaces(model, spaces)),
        ("trust", "How far to trust it", _trust(model, held_out)),
        ("steer", "Steer it yourself", _steer(model, panel)),
        ("made", "How this was made", _made(model)),
    ]


def _facts(model: Model, held_out: HeldOut) -> str:
    dataset, samples = model.dataset, model.dataset.samples()
    error, share = accuracy(model, held_out)
    ignored, c = dropped_inputs(model), model.constraints.c
    steps = max(len(trial.window.u) for trial in held_out.trials)
    facts = (
        (
            "data",
            counted(len(samples), "sample"),
            f"{counted(len(dataset), 'trajectory').replace('trajectorys', 'trajectories')}, "
            f"{dataset.n} states, {counted(dataset.m, 'control')}, every {dataset.dt:g} s",
        ),
        (
            "inputs that do not matter",
            escape(", ".join(ignored)) or "none",
            f"of {len(dataset.input_names)}{_along(model)}",
        ),
        (
            "constraints",
            f"c = {c}",
            f"{dataset.n - c} of {dataset.n} directions of motion are left",
        ),
        (
            f"held-out error after {steps * dataset.dt:.3g} s",
            number(error),
            f"median, in spreads of the state; {number(share)} of standing still",
        ),
    )
    return "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>"
        for name, value, more in facts
    )


def _along(model: Model) -> str:
    """Inputs that matter in the coordinates of the data, but not in the frame used."""
    tangent = model.retained.tangent
    more = [name for name in model.retained.dynamics if name not in (tangent or ())]
    where = "in its own axes" if model.choices.turning else "along the constraint"
    return f"; {where} also {escape(', '.join(more))}" if tangent and more else ""


def _data(model: Model) -> str:
    dataset, samples = model.dataset, model.dataset.samples()
    sources = ""
    if len(dataset.sources) > 1:
        counts = [
            f"{int(np.sum(samples.source == code))} {escape(name)}"
            for code, name in enumerate(dataset.sources)
        ]
        sources = f" Samples by source: {', '.join(counts)}."
    return (
        "<div class='pair'><figure><div id='paths' class='plot'></div><figcaption class='caption'>"
        f"Recorded trajectories; a dot marks where each begins.{sources}</figcaption></figure>"
        f"<div>{coverage_table(model)}</div></div>"
    )


def _inputs(model: Model) -> str:
    bars = pseudometric_bars(model)
    if not bars:
        return "<p>No pseudometric was learned: every input is used as it is.</p>"
    return f"<p>A contrastive loss learns how much each input tells about x′.</p>{bars}"


def _spaces(model: Model, spaces: list[dict[str, Any]]) -> str:
    if not spaces:
        return "<p>There is no constraint to draw: the state can move in every direction.</p>"
    equations = model.constraints.equations
    options = "".join(
        f"<option>{i + 1}: {escape(equations[i].text) if equations else 'not used'}</option>"
        for i in range(len(spaces))
    )
    hidden = " hidden" if len(spaces) == 1 else ""
    return (
        f"<div class='choose screen-only'{hidden}><label for='scene'>Constraint</label>"
        f"<select id='scene'>{options}</select></div><div class='pair'>"
        + "".join(
            f"<figure><h3>{head}</h3><div id='{name}' class='plot space screen-only'></div>"
            f"<img class='print-only' alt='{head}'><figcaption class='caption'>{words}</figcaption>"
            "</figure>"
            for name, head, words in (
                (
                    "manifold",
                    "The constraint manifold",
                    "<span id='scene-words'></span> Drag to turn it, scroll or pinch to zoom.",
                ),
                (
                    "feasible",
                    "Feasible velocities",
                    "Orange patches: where the state can go from there, as far as this constraint "
                    "is concerned. Blue: measured.",
                ),
            )
        )
        + "</div>"
    )


def _trust(model: Model, held_out: HeldOut) -> str:
    options = "".join(
        f"<option{' selected' * (i == len(held_out.shown) // 2)}>{_rank(i, len(held_out.shown))}: "
        f"trajectory {t.window.trajectory + 1}</option>"
        for i, t in enumerate(held_out.shown)
    )
    multiples = "".join(
        f"<div id='state-{j}' class='plot small'></div>" for j in range(model.dataset.n)
    )
    return (
        f"<p>{how_held_out(held_out)}</p>{_key(model, ('measured', 'still'))}"
        f"<h3>Rollouts against what was measured</h3><div class='choose'><label for='trial'>"
        f"Of {len(held_out.trials)} rollouts the</label><select id='trial'>{options}</select></div>"
        f"<figure><div class='multiples'>{multiples}</div><figcaption class='caption'>Shaded: two "
        f"standard deviations of the model. {coverage(held_out)}</figcaption></figure>"
        "<div class='pair'><figure><h3>Error against time ahead</h3><div id='horizon' class='plot'>"
        "</div><figcaption class='caption'>Median over held-out rollouts; shaded: 80 % of them. "
        "The error is the root mean square over states, each in its own spread.</figcaption>"
        "</figure><figure><h3>Error against distance from the data</h3><div id='distance' "
        "class='plot'></div><figcaption class='caption'>One-step error, median and 80 %, of "
        "held-out samples and of the outermost fifth predicted from the rest. Distance counts all "
        "inputs, in spreads, also those the model ignores.</figcaption></figure></div>"
    )


def _rank(index: int, count: int) -> str:
    if index == 0:
        return "best predicted"
    return (
        "worst predicted"
        if index == count - 1
        else f"better than {100 * (count - 1 - index) // (count - 1)} %"
    )


def _steer(model: Model, panel: str) -> str:
    return (
        "<p>Choose a start and controls; the model below runs in this page.</p>"
        f"{_key(model, ('measured',))}{panel}"
    )


def _made(model: Model) -> str:
    return (
        f"<p>Seed {model.seed}; hyperparameters set by the source "
        f"<code>{escape(model.primary)}</code>; integrator {model.integrator}. "
        f"JAX {jax.__version__}, NumPy {np.__version__}.</p><pre>{escape(model.summary())}</pre>"
    )


_STROKES = {"solid": "", "dash": "8 5", "dashdot": "9 4 2 4", "dot": "2 4"}


def _key(model: Model, more: tuple[str, ...]) -> str:
    """What the lines of the figures mean."""
    used = used_variant(model)
    items = []
    for name in (*variants(model), *more):
        if name == "measured":
            mark = "<circle cx='19' cy='6' r='3' fill='#000'/>"
        else:
            line = LINES[name]
            mark = (
                f"<line x1='0' x2='38' y1='6' y2='6' stroke='{line['color']}' "
                f"stroke-width='{4 if name == used else 2.5}' "
                f"stroke-dasharray='{_STROKES[line['dash']]}'/>"
            )
        text = "measured" if name == "measured" else label(name, used)
        items.append(f"<li><svg viewBox='0 0 38 12' aria-hidden='true'>{mark}</svg>{text}</li>")
    return f"<ul class='key'>{''.join(items)}</ul>"


def _rollouts(model: Model, held_out: HeldOut) -> dict[str, Any]:
    used = used_variant(model)
    names = list(held_out.trials[0].predicted)

    def plain(trial: Trial) -> dict[str, Any]:
        return {"x": trial.window.x, "predicted": trial.predicted, "std": trial.std}

    return {
        "states": list(model.dataset.state_names),
        "variants": [{"id": v, "label": label(v, used), "line": LINES[v]} for v in names],
        "used": used,
        "dt": model.dataset.dt,
        "trials": [plain(trial) for trial in held_out.shown],
    }


def _json(data: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _plain(data: Any) -> Any:
    """Lists and rounded floats; what is no number becomes null, which figures leave out."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, np.ndarray):
        return _plain(data.tolist())
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    if isinstance(data, (float, np.floating)):
        return float(f"{data:.{_DIGITS}g}") if np.isfinite(data) else None
    return int(data) if isinstance(data, np.integer) else data


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ValueError(
            "A page needs the package plotly, which is not installed. "
            "Install it with `pip install offmap[report]`."
        ) from error
    return get_plotlyjs()


def _version() -> str:
    try:
        return metadata.version("offmap")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "unreleased"


def _asset(name: str) -> str:
    return resources.files("offmap.report").joinpath("assets", name).read_text("utf-8")


def _replace(path: Path, text: str) -> None:
    """Write beside the file, then move: a reader never finds half a page."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
