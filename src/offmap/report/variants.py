"""The ways to predict with what a model has learned, given all of its samples or only some."""

import equinox as eqx
import jax
import numpy as np

from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.gp import fold_in
from offmap.heldout import condition_on, rows_of
from offmap.model import Model, Predictor
from offmap.types import Gamma

MEANING = {
    "none": "without constraint",
    "projected": "projected onto the constraint",
    "tangent": "in the tangent frame of the constraint",
}
SHORT = {"none": "without", "projected": "projected", "tangent": "tangent frame"}
"""The same where space is short."""


def variants(model: Model) -> dict[str, Predictor]:
    """The ways to predict with what was learned, from least to most structure."""
    gamma = known_gamma(model)
    found = {"none": Predictor(model.world, None)}
    if gamma is not None:
        found["projected"] = Predictor(model.world, gamma)
    if model.predictor.dynamics.frame is not None:
        found["tangent"] = model.predictor
    return found


def used_variant(model: Model) -> str:
    """Which of the variants the model itself predicts with."""
    if model.predictor.gamma is None:
        return "none"
    return "projected" if model.predictor.dynamics.frame is None else "tangent"


def known_gamma(model: Model) -> Gamma | None:
    """The constraint in force, or one that was learned and that held-out data advised against."""
    if model.predictor.gamma is not None:
        return model.predictor.gamma
    return model.constraint_fit.gamma if model.constraint_fit else None


def given(model: Model, rows: np.ndarray) -> dict[str, Predictor]:
    """The variants conditioned on the chosen samples alone, at their hyperparameters.

    As in the fit, samples of further sources are folded in with noise levels of their own.
    """
    own = model.dataset.samples().source[rows] == model.dataset.sources.index(model.primary)
    conditioned: dict[int, Dynamics] = {}

    def condition(dynamics: Dynamics) -> Dynamics:
        if id(dynamics) not in conditioned:  # variants share the dynamics before any constraint
            conditioned[id(dynamics)] = _condition(model, dynamics, rows[own], rows[~own])
        return conditioned[id(dynamics)]

    return {
        name: Predictor(condition(predictor.dynamics), predictor.gamma)
        for name, predictor in variants(model).items()
    }


def _condition(model: Model, dynamics: Dynamics, own: np.ndarray, further: np.ndarray) -> Dynamics:
    samples = model.dataset.samples()
    based = condition_on(dynamics, rows_of(samples, own))
    if not len(further):
        return based
    others = rows_of(samples, further)
    gps = fold_in(
        based.gps,
        reduced_inputs(others, dynamics.reduction),
        targets(others, dynamics.frame),
        others.source,
        config=model.config.dynamics,
    )
    return Dynamics(dynamics.reduction, gps, dynamics.frame)


@eqx.filter_jit
def velocities(predictor, x, u):
    """X' at many states and controls."""
    return jax.vmap(predictor)(x, u)


@eqx.filter_jit
def rows_at(gamma, x):
    """Γ at many states."""
    return jax.vmap(gamma)(x)
