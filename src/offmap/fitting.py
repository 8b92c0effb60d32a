"""Fit the whole pipeline: the one place that composes the stages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.angles import find_angles
from offmap.config import Config, Preset, stage_keys
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
from offmap.differentiation import corrected, differentiated, integrator_of
from offmap.gp import GPConfig
from offmap.mlp import MLPConfig
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.programs import spare_programs
from offmap.stages import by_trajectory, find_inputs, fit_stage, thinned
from offmap.structure import constrain, constrain_by
from offmap.summary import Choices
from offmap.symmetry import seen_from_its_axes
from offmap.threads import one_blas_thread
from offmap.types import Gamma, Progress, silent

_CORRECTIONS = 2  # of half-way differences, each with dynamics learned from the last
_FEW_STATES = 8  # with more, a learned Γ̂ has too many entries to learn beside equations


@one_blas_thread
def fit(
    dataset: Dataset,
    preset: Preset = "default",
    *,
    config: Config | None = None,
    dynamics: Literal["gp", "mlp"] | None = None,
    sparsify: bool | None = None,
    project: Literal["none", "learned"] | Gamma | None = None,
    history: int = 0,
    seed: int = 0,
    progress: Progress = silent,
) -> Model:
    """Learn dynamics, sparsity and constraints from trajectories.

    Args:
        dataset: the trajectories.
        preset: "default" (the best we know) or "paper" (the paper's method).
        config: settings for every stage, instead of a preset.
        dynamics: "gp" (Gaussian processes) or "mlp" (an ensemble of neural networks).
        sparsify: False uses all inputs (the paper's GP), True the retained ones (its DGP).
        project: "none", "learned", or a known Γ: a function from a state to (c, n + 1).
        history: number of past commands to use as further inputs, for actuators that lag.
        seed: makes the result reproducible.
        progress: called with a sentence as each stage begins.
    """
    spare_programs()
    dataset = dataset.with_history(history) if history else dataset
    dataset.check_inputs()
    config = config or Config.preset(preset)
    if dynamics is not None:
        config = replace(config, dynamics=_regressor(dynamics, config))
    if sparsify is not None:
        config = replace(config, sparsify=sparsify)
    known = project if callable(project) else None
    if known is None and project is not None:
        if project not in ("none", "learned"):
            raise ValueError(
                f'`project` is "none", "learned" or a function x -> Γ(x); got {project!r}. '
                f"Choose one of them."
            )
        config = replace(config, project=project)
    if known is not None:
        _check_gamma(known, dataset)
    primary = int(np.argmax(np.bincount(dataset.samples().source)))
    best: Model | None = None
    for told, settled in differentiated(dataset, primary, stage_keys(seed).dynamics, config):
        model = _learn(told, dataset, dataset.sources[primary], settled, known, seed, progress)
        if best is None or model.constraints.c > best.constraints.c:
            best = model
        if best.constraints.c >= dataset.n - dataset.m // (1 + dataset.history):
            break  # as many laws as controls leave room for
        progress = silent
    assert best is not None
    return best


def _learn(
    dataset: Dataset,
    logged: Dataset,
    source: str,
    config: Config,
    known: Gamma | None,
    seed: int,
    progress: Progress,
) -> Model:
    """Run all stages on data whose derivatives were told from what was logged."""
    keys, primary = stage_keys(seed), dataset.sources.index(source)
    dataset, angles = _with_angles(dataset, primary, keys.dynamics, config)
    progress("pseudometric: which inputs matter")
    sparsity = find_inputs(dataset, dataset.samples().xdot, primary, keys.pseudometric, config)
    progress("dynamics: fitting x' = f(x, u)")
    world, kernel, kernels = fit_stage(
        dataset, sparsity.reduction, None, primary, keys.dynamics, config
    )
    for _ in range(_CORRECTIONS if config.derivatives == "middle" else 0):
        better = corrected(dataset, world, logged)
        if better is None:
            break
        dataset = better
        sparsity = find_inputs(dataset, dataset.samples().xdot, primary, keys.pseudometric, config)
        world, kernel, kernels = fit_stage(
            dataset, sparsity.reduction, None, primary, keys.dynamics, config
        )
    if config.integrator == "auto":
        config = replace(config, integrator=integrator_of(world, dataset, primary))
    model = Model(
        Predictor(world, None),
        world,
        config,
        dataset,
        source,
        sparsity.metric,
        None,
        Choices(kernels, {}, disagreement=sparsity.disagreement, kernel=kernel, angles=angles),
        seed,
    )
    progress("constraint: which motions are impossible")
    if known is not None:
        return constrain(model, known)
    if config.project == "none":
        return model.with_constraint(None)
    return seen_from_its_axes(_discover(model))


def _discover(model: Model) -> Model:
    """Learn the constraint: short equations where any are of use, else a learned Γ̂(x).

    An equation holds beyond the data as it does among them. A Γ̂ learned point by point may explain
    more of the constraint there and be far off beyond, which no edge held out of the data shows.
    """
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).constraint
    samples, primary = dataset.samples(), dataset.sources.index(model.primary)
    space = find_normal_space(model.world, samples, primary, key=key, config=config.constraint)
    by_equations: Model | None = None
    if "dictionary" in config.representations:
        equations = fit_dictionary(
            model.world,
            space,
            samples,
            primary,
            model.world.regressor.noise_level(),
            _library(dataset),
            key=key,
            config=config.constraint,
            correlated=by_trajectory(config),
        )
        if equations.c:
            choices = replace(model.choices, representation="dictionary")
            by_equations = constrain_by(replace(model, choices=choices), equations)
            explained = equations.c >= space.c or dataset.n > _FEW_STATES
            if explained or by_equations.predictor.gamma is not None:
                return by_equations
    units = np.append(np.where(samples.xdot.std(axis=0) > 0, samples.xdot.std(axis=0), 1.0), 1)
    found, name, errors = choose_representation(space, units, _learners(model, units))
    choices = replace(model.choices, representation=name, representations=errors)
    learned = replace(model, choices=choices, constraint_fit=found)
    learned = constrain(learned, found.gamma)
    return by_equations if by_equations and learned.predictor.gamma is None else learned


def _with_angles(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> tuple[Dataset, tuple[str, ...]]:
    """The data with their angles declared, where nobody did; and those that were found."""
    if not config.embed_angles or dataset.angles:
        return dataset, ()
    samples = thinned(dataset.samples(), primary, key, config.discovery_points)
    own = samples.take(np.flatnonzero(samples.source == primary))
    groups = own.trajectory if by_trajectory(config) else None
    found = find_angles(own.x, own.u, own.xdot, groups=groups)
    names = tuple(dataset.state_names[i] for i in found)
    return (replace(dataset, angles=names), names) if names else (dataset, ())


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


def _regressor(name: str, config: Config) -> GPConfig | MLPConfig:
    if name not in ("gp", "mlp"):
        raise ValueError(f'`dynamics` is "gp" or "mlp"; got {name!r}. Choose one of them.')
    wanted = GPConfig if name == "gp" else MLPConfig
    return config.dynamics if isinstance(config.dynamics, wanted) else wanted()


def _check_gamma(gamma: Gamma, dataset: Dataset) -> None:
    shape = np.shape(gamma(jnp.asarray(dataset.samples().x[0])))
    if len(shape) != 2 or shape[1] != dataset.n + 1:
        raise ValueError(
            f"A known Γ maps a state of {dataset.n} numbers to a (c, {dataset.n + 1}) matrix "
            f"[G g]; got shape {shape}. Append the column g, zeros if there is no bias."
        )
