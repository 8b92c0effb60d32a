"""Fit the whole pipeline: the one place that composes the stages."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.angles import find_angles
from offmap.config import Config, Preset, stage_keys
from offmap.data import Dataset
from offmap.differentiation import corrected, differentiated, integrator_of, refined, several
from offmap.discovery import discover, find_equations
from offmap.gp import GPConfig
from offmap.mlp import MLPConfig
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.programs import spare_programs
from offmap.stages import by_trajectory, find_inputs, fit_stage, thinned
from offmap.structure import constrain
from offmap.summary import Choices
from offmap.symmetry import seen_from_its_axes
from offmap.threads import one_blas_thread
from offmap.types import Gamma, Progress, silent

_CORRECTIONS = 2  # of half-way differences, each with dynamics learned from the last
_SAFETY = 10.0  # times the last correction: what derivatives may still be off by


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
    ways = differentiated(dataset, primary, stage_keys(seed).dynamics, config)
    begun = (
        _begin(dataset, dataset.sources[primary], seed, silent if i else progress, *way)
        for i, way in enumerate(ways)
    )
    begin = next(begun) if len(ways) == 1 else _of_most_laws(begun)
    model, settled = _finish(begin, known, progress), begin.config
    if settled.bandwidth is None or settled.timing != (0, 0):
        return model
    progress("derivatives: told again from what the model leaves of noisy states")
    better = refined(dataset, model.predict, settled.bandwidth, model.primary)
    if config.hold_out == "auto" and several(better, model.primary):
        settled = replace(settled, hold_out="trajectories")
    return _finish(_begin(dataset, model.primary, seed, progress, better, settled), known, progress)


def _finish(model: Model, known: Gamma | None, progress: Progress) -> Model:
    """With a constraint that is known, or discovered, or none."""
    progress("constraint: which motions are impossible")
    if known is not None:
        return constrain(model, known)
    if model.config.project == "none":
        return model.with_constraint(None)
    return seen_from_its_axes(discover(model))


def _begin(
    logged: Dataset, source: str, seed: int, progress: Progress, dataset: Dataset, config: Config
) -> Model:
    """Sparsity and dynamics of data whose derivatives were told from those that were logged."""
    keys, primary = stage_keys(seed), dataset.sources.index(source)
    dataset, angles = _with_angles(dataset, primary, keys.dynamics, config)

    def learned(dataset: Dataset, progress: Progress = silent) -> Model:
        xdot = dataset.samples().xdot
        progress("pseudometric: which inputs matter")
        sparsity = find_inputs(dataset, xdot, primary, keys.pseudometric, config)
        progress("dynamics: fitting x' = f(x, u)")
        world, kernel, kernels = fit_stage(
            dataset, sparsity.reduction, None, primary, keys.dynamics, config
        )
        choices = Choices(
            kernels,
            {},
            disagreement=sparsity.disagreement,
            kernel=kernel,
            angles=angles,
            cut_from=len(logged) if len(dataset) > len(logged) else 0,
        )
        predictor, metric = Predictor(world, None), sparsity.metric
        return Model(predictor, world, config, dataset, source, metric, None, choices, seed)

    model = learned(dataset, progress)
    for _ in range(_CORRECTIONS if config.derivatives == "middle" else 0):
        better = corrected(model.dataset, model.world, logged)
        if better is None:
            break
        change = better.samples().xdot - model.dataset.samples().xdot
        error = tuple((_SAFETY * np.sqrt(np.mean(change**2, axis=0))).tolist())
        model = learned(better)
        model = replace(model, choices=replace(model.choices, derivative_error=error))
    if config.integrator == "auto":
        integrator = integrator_of(model.world, model.dataset, primary)
        model = replace(model, config=replace(config, integrator=integrator))
    return model


def _of_most_laws(models: Iterable[Model]) -> Model:
    """The model whose data obey most laws; of those alike, the one that extrapolates best.

    No other is fitted after one whose data obey as many as controls leave room for.
    """
    judged: list[tuple[int, float, Model]] = []
    for model in models:
        dataset, laws = model.dataset, find_equations(model).c
        if laws >= dataset.n - dataset.m // (1 + dataset.history) > 0:
            return model
        error = min(model.choices.kernels.values(), default=0.0)
        judged.append((-laws, error, model))
    return min(judged, key=lambda each: each[:2])[2]


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
