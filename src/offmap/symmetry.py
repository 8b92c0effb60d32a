"""Dynamics in a robot's own axes, for one that nothing constrains and that ignores its heading."""

from dataclasses import replace

import numpy as np

from offmap.axes import TurnedAxes, likeliest_turning
from offmap.config import stage_keys
from offmap.constraint.doubt import misfit
from offmap.dynamics import Dynamics, complete_dynamics, targets
from offmap.gp.verdict import UNSURE, root_mean
from offmap.heldout import edge_errors
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.stages import by_trajectory, find_inputs, fit_stage
from offmap.structure import FLOOR, LEVEL, done_without, most_structure, rolled_out, unsure_of
from offmap.threads import one_blas_thread


@one_blas_thread
def seen_from_its_axes(model: Model) -> Model:
    """The model with dynamics in axes that turn with an angle, where held-out data favour these.

    Tried where the model has no constraint, or one that motions break in a way that state and
    control explain. The dynamics must then do without the angle: that is the symmetry. Beside a
    constraint they must be clearly better, since that is more structure.
    """
    samples = model.dataset.samples()
    primary = model.dataset.sources.index(model.primary)
    own = samples.take(np.flatnonzero(samples.source == primary))
    gamma = model.predictor.gamma
    if not model.config.tangent or (gamma is not None and not np.any(misfit(gamma, own) > 0)):
        return model
    turning = likeliest_turning(own.x, own.u, own.xdot, model.dataset.angle_indices)
    if turning is None:
        return model
    turned, kernel = _fit_turned(model, TurnedAxes(turning, model.dataset.n), primary)
    if model.dataset.state_names[turning.angle] in turned.reduction.names:
        return model
    used = model.choices.used or "none"
    candidates = {used: model.predictor, "turned": Predictor(turned, None)}
    if gamma is not None:
        candidates = dict(reversed(candidates.items()))
    along = done_without(Predictor(model.world, None), candidates["turned"], model, primary)
    edge = edge_errors(candidates, samples, primary, by_trajectory(model.config), along)
    settled = max(root_mean(edge).values()) <= FLOOR
    rolled = {} if settled else rolled_out(candidates, model, primary, along)
    level = UNSURE if gamma is not None else LEVEL
    best = most_structure(edge, rolled, level=level, unsure=max(level, unsure_of(model, gamma)))
    choices = replace(
        model.choices,
        structure={**model.choices.structure, **root_mean(edge)},
        rollouts={**model.choices.rollouts, **root_mean(rolled)},
        used=best,
    )
    if best != "turned":
        return replace(model, choices=choices)
    complete = complete_dynamics(turned, samples, primary, config=model.config.dynamics)
    names = model.dataset.state_names
    choices = replace(
        choices,
        tangent_kernel=kernel,
        turning=(names[turning.first], names[turning.second], names[turning.angle]),
    )
    return replace(model, predictor=Predictor(complete, None), choices=choices)


def _fit_turned(model: Model, axes: TurnedAxes, primary: int) -> tuple[Dynamics, str]:
    """Dynamics in turned axes, on the inputs that matter there; and their kernel."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).tangent
    reduction = find_inputs(dataset, targets(dataset.samples(), axes), primary, key, config)
    dynamics, kernel, _ = fit_stage(dataset, reduction.reduction, axes, primary, key, config)
    return dynamics, kernel
