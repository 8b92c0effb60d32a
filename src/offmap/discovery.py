"""Discover the constraint: as short equations where any are of use, else as a learned Γ̂(x)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from offmap.config import stage_keys
from offmap.constraint import (
    ConstraintFit,
    Library,
    NormalSpace,
    choose_representation,
    find_normal_space,
    fit_dictionary,
    fit_projector,
    fit_rows,
)
from offmap.data import Dataset
from offmap.model import Model
from offmap.stages import by_trajectory
from offmap.structure import constrain, constrain_by

_FEW_STATES = 8  # with more, a learned Γ̂ has too many entries to learn beside equations


def discover(model: Model) -> Model:
    """Learn the constraint: short equations where any are of use, else a learned Γ̂(x).

    An equation holds beyond the data as it does among them. A Γ̂ learned point by point may explain
    more of the constraint there and be far off beyond, which no edge held out of the data shows.
    """
    dataset = model.dataset
    by_equations: Model | None = None
    equations = find_equations(model)
    if equations.c:
        choices = replace(model.choices, representation="dictionary")
        by_equations = constrain_by(replace(model, choices=choices), equations)
        explained = equations.c >= equations.normal_space.c or dataset.n > _FEW_STATES
        if explained or by_equations.predictor.gamma is not None:
            return by_equations
    xdot = dataset.samples().xdot
    units = np.append(np.where(xdot.std(axis=0) > 0, xdot.std(axis=0), 1.0), 1)
    space = equations.normal_space
    found, name, errors = choose_representation(space, units, _learners(model, units))
    choices = replace(model.choices, representation=name, representations=errors)
    learned = replace(model, choices=choices, constraint_fit=found)
    learned = constrain(learned, found.gamma)
    return by_equations if by_equations and learned.predictor.gamma is None else learned


def find_equations(model: Model) -> ConstraintFit:
    """Short equations that the data obey, beside the normal space of possible motions."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).constraint
    samples, primary = dataset.samples(), dataset.sources.index(model.primary)
    space = find_normal_space(model.world, samples, primary, key=key, config=config.constraint)
    if "dictionary" not in config.representations:
        return ConstraintFit(None, space, space.basis, [], (), ())
    return fit_dictionary(
        model.world,
        space,
        samples,
        primary,
        model.world.regressor.noise_level(),
        _library(dataset),
        key=key,
        config=config.constraint,
        correlated=by_trajectory(config),
        acting=dataset.m // (1 + dataset.history),
        off=np.array(model.choices.derivative_error) if model.choices.derivative_error else None,
    )


def _learners(model: Model, units: np.ndarray) -> dict[str, Callable[[NormalSpace], ConstraintFit]]:
    """Ways to learn a constraint that is no short equation."""
    names, config = model.dataset.state_names, model.config.constraint
    key, angles = stage_keys(model.seed).constraint, model.dataset.angle_indices
    ways = {
        "projector": lambda space: fit_projector(
            space, names, angles, units, key=key, config=config
        ),
        "rows": lambda space: fit_rows(space, names, key=key, config=config),
    }
    return {name: way for name, way in ways.items() if name in model.config.representations}


def _library(dataset: Dataset) -> Library:
    """The terms of constraints: sines of the declared angles, or of all states if none is."""
    angles = dataset.angle_indices
    return Library(dataset.state_names, angles or tuple(range(dataset.n)), angles)
