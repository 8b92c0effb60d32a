"""Bars and tables of the page, as HTML that needs no script: data, pseudometric, spectrum."""

from html import escape

import numpy as np

from offmap.model import Model
from offmap.report.words import counted, number

_BINS = 24
_DECADES_BELOW = 16  # singular values below this many powers of ten of the largest are round-off


def coverage_table(model: Model) -> str:
    """For every input its range, how the samples fill it, and whether the dynamics use it."""
    dataset, samples = model.dataset, model.dataset.samples()
    columns = np.concatenate([samples.x, samples.u], axis=1)
    roles = ["state"] * dataset.n + ["control"] * dataset.m
    rows = []
    for name, role, values in zip(dataset.input_names, roles, columns.T, strict=True):
        counts, _ = np.histogram(values, _BINS)
        angle = " (angle)" if name in dataset.angles else ""
        rows.append(
            f"<tr><th scope='row'><code>{escape(name)}</code><small>{role}{angle}</small></th>"
            f"<td class='number'>{values.min():.3g}</td><td>{_histogram(counts)}</td>"
            f"<td class='number'>{values.max():.3g}</td></tr>"
        )
    return (
        "<table class='coverage'><thead><tr><th>input</th><th>least</th><th>where the samples are"
        f"</th><th>most</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def pseudometric_bars(model: Model) -> str:
    """The weight of every input, the threshold, and what was kept; empty without a pseudometric."""
    metric = model.pseudometric
    if metric is None:
        return ""
    threshold = model.config.pseudometric.threshold
    if metric.diagonal:
        weights, kept = metric.input_weights, set(model.retained.dynamics)
    else:
        weights = {f"direction {i + 1}": float(w) for i, w in enumerate(metric.weights)}
        kept = {name for name, weight in weights.items() if weight > threshold}
    rows = []
    for name, weight in weights.items():
        mark = "kept" if name in kept else "dropped"
        against = (weight > threshold) != (name in kept)
        rows.append(
            f"<div class='bar {mark}'><code>{escape(name)}</code><span class='track'>"
            f"<i style='width:{100 * min(weight, 1.0):.2f}%'></i>"
            f"<em style='left:{100 * threshold:.2f}%'></em></span>"
            f"<span class='value'>{weight:.3f}</span>"
            f"<span class='verdict'>{mark}{'*' if against else ''}</span></div>"
        )
    star = "*" in "".join(rows)
    note = " * against its weight: slopes of a Gaussian process decided." if star else ""
    return (
        f"<div class='bars' role='img' aria-label='Weight of every input'>{''.join(rows)}</div>"
        "<p class='caption'>Weight of each input in the learned pseudometric, the largest being 1. "
        f"The dashed line is the threshold, {threshold:g}: below it an input is dropped.{note}</p>"
    )


def spectrum_bars(model: Model) -> str:
    """The singular values on a logarithmic scale, with the gap from which c was read."""
    values = model.constraints.singular_values
    if not values.size:
        return ""
    fit = model.constraint_fit
    c = fit.normal_space.c if fit else 0
    floor = values[0] * 10.0**-_DECADES_BELOW
    rows = []
    for i, value in enumerate(values):
        free = i < len(values) - c
        width = 100 * np.log10(max(value, floor) / floor) / _DECADES_BELOW
        rows.append(
            f"<div class='bar {'kept' if free else 'null'}'><code>σ{_subscript(i + 1)}</code>"
            f"<span class='track'><i style='width:{width:.1f}%'></i></span>"
            f"<span class='value'>{number(float(value))}</span>"
            f"<span class='verdict'>{'free' if free else 'none'}</span></div>"
        )
        if c and i == len(values) - c - 1:
            ratio = value / max(values[i + 1], floor)
            rows.append(
                f"<div class='gap'><span>gap: a factor of {number(float(ratio))}</span></div>"
            )
    reading = (
        f"below the gap {'lies' if c == 1 else 'lie'} {counted(c, 'direction')} in which no action "
        f"can move the state: c = {c}"
        if c
        else "no gap is wide enough to be a constraint: c = 0"
    )
    other = model.constraints.c
    agree = (
        ""
        if other == c
        else f" The search for short equations found {other}; the model uses these."
    )
    return (
        f"<div class='bars' role='img' aria-label='Singular values'>{''.join(rows)}</div>"
        f"<p class='caption'>Median singular values of the stacked velocities [x′ 1] that many "
        f"actions cause at one state, on a logarithmic scale; {reading}.{agree}</p>"
    )


def _histogram(counts: np.ndarray) -> str:
    bars = "".join(
        f"<rect x='{i}' y='{20 - 20 * count / counts.max():.2f}' width='.86' "
        f"height='{20 * count / counts.max():.2f}'/>"
        for i, count in enumerate(counts)
        if count
    )
    return (
        f"<svg class='histogram' viewBox='0 0 {len(counts)} 20' preserveAspectRatio='none' "
        f"role='img' aria-label='histogram'>{bars}</svg>"
    )


def _subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
