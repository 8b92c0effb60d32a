"""What was discovered, in sentences."""

from html import escape

import numpy as np

from offmap.model import Model
from offmap.report.trials import FOLDS, POINTS, HeldOut, state_error
from offmap.report.variants import MEANING, used_variant, variants

_KERNELS = {
    "affine": "straight in the controls and smooth in the rest (affine)",
    "rbf": "smooth in every input (RBF)",
    "linear": "straight in every input (linear)",
    "cosine": "a sinusoid (cosine)",
    "rbf+linear": "smooth, and straight far from the data (RBF + linear)",
}
_LEVEL = 1.02  # errors within this ratio count as equal, as in the fit


def headline(model: Model) -> str:
    """The discovery in one sentence."""
    c, dropped = model.constraints.c, dropped_inputs(model)
    constraint = (
        "no constraint on the motion was found"
        if c == 0
        else f"every motion obeys {counted(c, 'constraint')}"
    )
    tangent = model.retained.tangent
    if tangent:
        along = "along it" if c == 1 else "along them"
        along = "in the robot's own axes" if model.choices.turning else along
        text = f"{constraint}, and {along} only {_named(tangent)} matter"
        return text[0].upper() + text[1:] + ("s." if len(tangent) == 1 else ".")
    inputs = (
        "all inputs are used"
        if not dropped
        else f"{len(dropped)} of {counted(len(model.dataset.input_names), 'input')} "
        f"{'does' if len(dropped) == 1 else 'do'} not matter"
    )
    text = f"{constraint}, and {inputs}."
    return text[0].upper() + text[1:]


def discoveries(model: Model) -> list[str]:
    """Paragraphs of HTML: inputs, constraint, structure, kernel."""
    return [*_inputs(model), *_constraint(model), *_structure(model), *_kernel(model)]


def dropped_inputs(model: Model) -> list[str]:
    """Inputs that the dynamics in the coordinates of the data ignore."""
    metric = model.pseudometric
    if metric is not None and not metric.diagonal:
        return []  # directions were kept, not inputs
    kept = model.retained.dynamics
    return [name for name in model.dataset.input_names if name not in kept]


def accuracy(model: Model, held_out: HeldOut) -> tuple[float, float]:
    """Median final error of held-out rollouts, in spreads, and as a share of standing still."""
    own = [state_error(model, trial, used_variant(model))[-1] for trial in held_out.trials]
    still = [state_error(model, trial, None)[-1] for trial in held_out.trials]
    middle = float(np.median(own))
    return middle, middle / max(float(np.median(still)), 1e-300)


def how_held_out(held_out: HeldOut) -> str:
    """What the model was not told when it made these predictions."""
    what = (
        "whole trajectories were held out, a fifth of them at a time"
        if held_out.whole
        else "the data are too few trajectories to hold out whole ones, so stretches of them were "
        "held out, a fifth at a time; their neighbours in time were known"
    )
    thin = (
        f" To save time only {POINTS} of the other samples were conditioned on."
        if held_out.thinned
        else ""
    )
    return (
        f"In {FOLDS} rounds {what}. The Gaussian processes were conditioned on the rest alone; "
        f"hyperparameters, inputs and constraint are those of the whole fit.{thin}"
    )


def coverage(held_out: HeldOut) -> str:
    """Whether the bands can be believed."""
    share = held_out.coverage
    verdict = (
        "about what bands of two standard deviations should hold"
        if share >= 0.9
        else "fewer than the 95 % that bands of two standard deviations should hold: where the "
        "measured start or the measured states are noisy, that noise is not in the band"
    )
    return f"{100 * share:.0f} % of the measured states beside these bands lie inside, {verdict}."


def counted(number: int, noun: str) -> str:
    """'1 constraint', '2 constraints'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """'a, b and c', escaped and set as code."""
    return _named([f"<code>{escape(name)}</code>" for name in names])


def _named(names: list[str] | tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def number(value: float) -> str:
    """Two digits, with a power of ten set as one where it is needed."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10<sup>{int(exponent):d}</sup>".replace("<sup>-", "<sup>−")


def _inputs(model: Model) -> list[str]:
    kept, dropped = model.retained.dynamics, dropped_inputs(model)
    if model.pseudometric is None:
        return [f"<b>Inputs.</b> All of {listed(kept)} are used; nothing was asked to be dropped."]
    if not model.pseudometric.diagonal:
        return [f"<b>Inputs.</b> The motion depends on the directions {listed(kept)}."]
    text = f"<b>Inputs.</b> How the state changes depends on {listed(kept)}"
    text += f", and not on {listed(dropped)}." if dropped else ": every input matters."
    if any(name in model.dataset.state_names for name in dropped):
        text += " What was learned at one place holds at every other."
    if model.choices.disagreement:
        text += f" Two judges disagreed: {escape(model.choices.disagreement)}."
    return [text]


def _constraint(model: Model) -> list[str]:
    found = model.constraints
    if found.c == 0:
        if not found.singular_values.size:
            return ["<b>Constraint.</b> None was looked for."]
        if model.choices.used == "none" and "projected" in variants(model):
            return [
                "<b>Constraint.</b> One was found, but it did not help at the held-out edge of the "
                "data: predictions leave it aside."
            ]
        return [
            "<b>Constraint.</b> None: the actions move the state in every direction, and the "
            "spectrum below has no gap. Predictions are not projected."
        ]
    equations = "".join(
        f"<div class='equation'><span>{escape(equation.text)}</span>"
        f"<small>leaves {number(equation.residual)} "
        f"{'of the noise' if equation.in_noise else 'of the row'} unexplained</small></div>"
        for equation in found.equations
    )
    given = "" if found.singular_values.size else " It was given, not learned."
    return [
        f"<b>Constraint.</b> Every motion in the data obeys{given and ' this.'}{given}{equations}"
    ]


def _structure(model: Model) -> list[str]:
    lines = []
    scores = model.choices.structure
    if len(scores) > 1:
        used = model.choices.used
        every = ", ".join(f"{MEANING[name]} {number(score)}" for name, score in scores.items())
        near = [score <= _LEVEL * min(scores.values()) for score in scores.values()]
        level = "Where errors are level, more structure wins. " if sum(near) > 1 else ""
        lines.append(
            f"<b>Held-out data decided.</b> The outermost fifth of the data was predicted from the "
            f"rest in each way (errors in spreads of x'): {every}. {level}The model predicts "
            f"<b>{MEANING[used]}</b>."
        )
    elif model.constraints.c:
        lines.append(f"<b>Prediction.</b> Velocities are {MEANING[used_variant(model)]}.")
    tangent = model.retained.tangent
    if tangent is not None:
        where = "Along the constraint"
        if model.choices.turning:
            *turning, angle = model.choices.turning
            where = f"In axes that turn {listed(turning)} with {listed((angle,))}"
        of = f"only on {listed(tangent)}" if tangent else "on nothing"
        text = f"<b>{where}</b> the motion depends {of}"
        ignored = [name for name in model.retained.dynamics if name not in tangent]
        more = f", no longer on {listed(ignored)}: a symmetry found in the data" if ignored else ""
        lines.append(f"{text}{more}.")
    return lines


def _kernel(model: Model) -> list[str]:
    scores = model.choices.kernels
    if len(scores) < 2:
        return []
    best = min(scores, key=lambda name: scores[name])
    level = [n for n, s in scores.items() if n != best and s <= _LEVEL * scores[best]]
    every = ", ".join(f"{escape(name)} {number(score)}" for name, score in scores.items())
    close = f"; {listed(level)} did about as well" if level else ""
    return [
        f"<b>Shape of the functions.</b> Of {len(scores)} kernels, one that is "
        f"{_KERNELS.get(best, escape(best))} predicted the held-out edge best ({every}){close}."
    ]
