"""The ways to predict with what a model has learned, given all of its samples or only some."""

import numpy as np

from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.gp import AbstractGPs, GPConfig, fold_in
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.tangent import TangentFrame
from offmap.types import Gamma

MEANING = {
    "none": "without constraint",
    "soft": "drawn towards the constraint",
    "projected": "projected onto the constraint",
    "tangent": "in the tangent frame of the constraint",
    "turned": "in axes that turn with the heading",
}
SHORT = {
    "none": "without",
    "soft": "soft",
    "projected": "projected",
    "tangent": "tangent frame",
    "turned": "own axes",
}
"""The same where space is short."""


def variants(model: Model) -> dict[str, Predictor]:
    """The ways to predict with what was learned, from least to most structure."""
    gamma = known_gamma(model)
    found = {"none": Predictor(model.world, None)}
    if model.predictor.softness is not None:
        found["soft"] = model.predictor
    if gamma is not None:
        found["projected"] = Predictor(model.world, gamma)
    if model.predictor.dynamics.frame is not None:
        found[used_variant(model)] = model.predictor
    return found


def used_variant(model: Model) -> str:
    """Which of the variants the model itself predicts with."""
    frame = model.predictor.dynamics.frame
    if frame is not None:
        return "tangent" if isinstance(frame, TangentFrame) else "turned"
    if model.predictor.gamma is None:
        return "none"
    return "projected" if model.predictor.softness is None else "soft"


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

    def condition(predictor: Predictor) -> Predictor:
        shared = id(predictor.dynamics)  # variants share the dynamics before any constraint
        if shared not in conditioned:
            conditioned[shared] = _condition(model, predictor, rows[own], rows[~own])
        return Predictor(conditioned[shared], predictor.gamma, predictor.softness)

    return {name: condition(predictor) for name, predictor in variants(model).items()}


def _condition(
    model: Model, predictor: Predictor, own: np.ndarray, further: np.ndarray
) -> Dynamics:
    samples, config = model.dataset.samples(), model.config.dynamics
    dynamics = predictor.conditioned_on(samples.take(own)).dynamics
    based = dynamics.regressor
    if not len(further) or not isinstance(based, AbstractGPs) or not isinstance(config, GPConfig):
        return dynamics
    others = samples.take(further)
    gps = fold_in(
        based,
        reduced_inputs(others, dynamics.reduction),
        targets(others, dynamics.frame),
        others.source,
        config=config,
    )
    return Dynamics(dynamics.reduction, gps, dynamics.frame)
