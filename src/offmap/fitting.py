"""Fit the whole pipeline: the one place that composes the stages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.angles import find_angles
from offmap.config import Config, Preset
from offmap.constraint import (
    ConstraintFit,
    DictionaryConstraint,
    Library,
    NormalSpace,
    choose_representation,
    find_normal_space,
    fit_dictionary,
    fit_projector,
    fit_rows,
)
from offmap.data import Dataset, Samples
from offmap.dynamics import (
    Dynamics,
    complete_dynamics,
    fit_dynamics,
    reduced_inputs,
    targets,
)
from offmap.features import Features
from offmap.gp import GPConfig, choose_kernel
from offmap.gp.verdict import level_with_best, root_mean
from offmap.heldout import edge_error, rollout_error
from offmap.mlp import MLPConfig
from offmap.model import Model, stage_keys
from offmap.predictor import Predictor
from offmap.projection import unit_residual
from offmap.pseudometric import Reduction
from offmap.sparsity import Sparsity, find_sparsity
from offmap.summary import Choices
from offmap.tangent import TangentFrame, tangent_frame
from offmap.threads import one_blas_thread
from offmap.types import Gamma, Progress, silent

_SOFT_POINTS = 3000  # beyond, a variance for every prediction costs too much
_FLOOR = 1e-4  # held-out errors below this share of the spread of x' count as equal


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
    keys = stage_keys(seed)
    dataset, angles = _with_angles(dataset, primary, keys.dynamics, config)

    progress("pseudometric: which inputs matter")
    sparsity = _sparsify(dataset, dataset.samples().xdot, primary, keys.pseudometric, config)
    progress("dynamics: fitting x' = f(x, u)")
    world, kernel, kernels = _fit(dataset, sparsity.reduction, None, primary, keys.dynamics, config)
    model = Model(
        Predictor(world, None),
        world,
        config,
        dataset,
        dataset.sources[primary],
        sparsity.metric,
        None,
        Choices(kernels, {}, disagreement=sparsity.disagreement, kernel=kernel, angles=angles),
        seed,
    )
    progress("constraint: which motions are impossible")
    if known is not None:
        return constrain(model, known)
    return model.with_constraint(None) if config.project == "none" else _discover(model)


@one_blas_thread
def constrain(model: Model, gamma: Gamma | None) -> Model:
    """The model made to obey Γ in the way its settings say; None takes any constraint away.

    By projection alone (the paper), or by whatever predicts the held-out edge of the data best:
    no constraint, a soft or a firm projection onto it, or dynamics in its tangent frame. Unless
    errors of one step are negligible, rollouts along held-out trajectories have a say too.
    """
    if gamma is None or not model.config.tangent:
        return model.with_constraint(gamma, model.constraint_fit)
    samples = model.dataset.samples()
    primary = model.dataset.sources.index(model.primary)
    tangent, kernel = _fit_tangent(model, gamma, primary)
    candidates = {
        "none": Predictor(model.world, None),
        "soft": Predictor(model.world, gamma, _softness(gamma, samples, primary)),
        "projected": Predictor(model.world, gamma),
        "tangent": Predictor(tangent, gamma),
    }
    if len(samples) > _SOFT_POINTS:
        del candidates["soft"]
    edge = {
        name: edge_error(candidate, samples, primary, _by_trajectory(model.config))
        for name, candidate in candidates.items()
    }
    scores = root_mean(edge)
    rolled = _rolled_out(candidates, model, primary) if max(scores.values()) > _FLOOR else {}
    rollouts = root_mean(rolled)
    best = _most_structure(edge, rolled)
    choices = replace(model.choices, structure=scores, rollouts=rollouts, used=best)
    model = replace(model, choices=choices)
    if best != "tangent":
        chosen = candidates[best]
        return model.with_constraint(chosen.gamma, model.constraint_fit, chosen.softness)
    complete = complete_dynamics(tangent, samples, primary, config=model.config.dynamics)
    choices = replace(choices, tangent_kernel=kernel)
    return replace(model, predictor=Predictor(complete, gamma), choices=choices)


def _rolled_out(
    candidates: dict[str, Predictor], model: Model, primary: int
) -> dict[str, np.ndarray]:
    """Errors of held-out rollouts, where trajectories are long enough to tell."""
    dataset = model.dataset
    errors = {
        name: rollout_error(
            candidate,
            dataset,
            primary,
            model.config.integrator,
            _by_trajectory(model.config),
        )
        for name, candidate in candidates.items()
    }
    return {name: error for name, error in errors.items() if error is not None}


def _most_structure(*judges: dict[str, np.ndarray]) -> str:
    """The last candidate, each having more structure than the one before, that is no worse.

    A candidate must be level with the best before every judge. Where none is, the one that is
    least behind before the judge that likes it least is taken.
    """
    judges = tuple(judge for judge in judges if judge)
    level = set.intersection(*(set(level_with_best(judge, _FLOOR)) for judge in judges))
    if level:
        return [name for name in judges[0] if name in level][-1]
    scores = [{n: max(e, _FLOOR) for n, e in root_mean(judge).items()} for judge in judges]
    regret = {
        name: max(judge[name] / min(judge.values()) for judge in scores) for name in scores[0]
    }
    return min(regret, key=lambda name: regret[name])


def _softness(gamma: Gamma, samples: Samples, primary: int) -> Array:
    """How far the measured motions of the primary source are from obeying each row of Γ."""
    own = samples.take(np.flatnonzero(samples.source == primary)[:_SOFT_POINTS])
    rows = jax.vmap(lambda x, xdot: unit_residual(xdot, gamma(x)))
    residual = rows(jnp.asarray(own.x), jnp.asarray(own.xdot))
    return jnp.sqrt(jnp.mean(residual**2, axis=0))


def _with_angles(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> tuple[Dataset, tuple[str, ...]]:
    """The data with their angles declared, where nobody did; and those that were found."""
    if not config.embed_angles or dataset.angles:
        return dataset, ()
    samples = _thinned(dataset.samples(), primary, key, config.discovery_points)
    own = samples.take(np.flatnonzero(samples.source == primary))
    groups = own.trajectory if _by_trajectory(config) else None
    found = find_angles(own.x, own.u, own.xdot, groups=groups)
    names = tuple(dataset.state_names[i] for i in found)
    return (replace(dataset, angles=names), names) if names else (dataset, ())


def _sparsify(
    dataset: Dataset, outputs: np.ndarray, primary: int, key: Array, config: Config
) -> Sparsity:
    """Which inputs the outputs depend on, by the samples of the primary source."""
    features = None
    if config.embed_angles and dataset.angles:
        features = Features(dataset.input_names, dataset.angle_indices)
    if not config.sparsify:
        return Sparsity(Reduction.everything(dataset.input_names, features), None, {}, "")
    samples = dataset.samples()
    own = samples.source == primary
    return find_sparsity(
        np.concatenate([samples.x, samples.u], axis=1)[own],
        outputs[own],
        dataset.input_names,
        features,
        states=dataset.n,
        key=key,
        config=config.pseudometric,
        check=config.slope_check,
        groups=samples.trajectory[own] if _by_trajectory(config) else None,
    )


def _fit(
    dataset: Dataset,
    reduction: Reduction,
    frame: TangentFrame | None,
    primary: int,
    key: Array,
    config: Config,
) -> tuple[Dynamics, str, dict[str, float]]:
    """Dynamics in the coordinates of the data or of a frame, from as many samples as it takes.

    Also the kernel, and the scores of all that were tried.
    """
    settings, scores = _choose(dataset, reduction, frame, primary, key, config)
    samples = _thinned(dataset.samples(), primary, key, config.discovery_points)
    kernel = settings.kernel if isinstance(settings, GPConfig) else ""
    return fit_dynamics(samples, reduction, key=key, config=settings, frame=frame), kernel, scores


def _thinned(samples: Samples, primary: int, key: Array, most: int | None) -> Samples:
    """All samples but those of the primary source beyond `most`, which are drawn at random."""
    own = np.flatnonzero(samples.source == primary)
    if most is None or len(own) <= most:
        return samples
    chosen = own[np.asarray(jax.random.permutation(key, len(own)))[:most]]
    others = np.flatnonzero(samples.source != primary)
    return samples.take(np.sort(np.concatenate([chosen, others])))


def _fit_tangent(model: Model, gamma: Gamma, primary: int) -> tuple[Dynamics, str]:
    """Dynamics in the tangent frame of Γ, on the inputs that matter there; and their kernel."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).tangent
    samples = dataset.samples()
    own = samples.x[samples.source == primary]
    frame = tangent_frame(gamma, own, _periodic(dataset, gamma))
    reduction = _sparsify(dataset, targets(samples, frame), primary, key, config).reduction
    dynamics, kernel, _ = _fit(dataset, reduction, frame, primary, key, config)
    return dynamics, kernel


def _choose(
    dataset: Dataset,
    reduction: Reduction,
    frame: TangentFrame | None,
    primary: int,
    key: Array,
    config: Config,
) -> tuple[GPConfig | MLPConfig, dict[str, float]]:
    """GP settings with the candidate kernel that best extrapolates, and the scores of all."""
    if isinstance(config.dynamics, MLPConfig):
        return config.dynamics, {}
    if len(config.kernels) == 1:
        return replace(config.dynamics, kernel=config.kernels[0]), {}
    samples = dataset.samples()
    own = np.flatnonzero(samples.source == primary)
    own = own[np.asarray(jax.random.permutation(key, len(own)))[: config.selection_points]]
    kernel, scores = choose_kernel(
        reduced_inputs(samples, reduction)[own],
        targets(samples, frame)[own],
        config.kernels,
        key=key,
        config=replace(config.dynamics, hyper_points=config.selection_points),
        controls=reduction.rows_of(range(dataset.n, dataset.n + dataset.m)),
        groups=samples.trajectory[own] if _by_trajectory(config) else None,
    )
    return replace(config.dynamics, kernel=kernel), {
        str(name): score for name, score in scores.items()
    }


def _discover(model: Model) -> Model:
    """Learn the constraint: short equations where they explain it all, else a learned Γ̂(x)."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).constraint
    samples, primary = dataset.samples(), dataset.sources.index(model.primary)
    space = find_normal_space(model.world, samples, primary, key=key, config=config.constraint)
    found: ConstraintFit | None = None
    name, errors = "dictionary", dict[str, float]()
    if "dictionary" in config.representations:
        found = fit_dictionary(
            space,
            samples,
            primary,
            model.world.regressor.noise_level(),
            _library(dataset),
            key=key,
            config=config.constraint,
            correlated=_by_trajectory(config),
        )
    if found is None or found.c < space.c:
        units = np.append(np.where(samples.xdot.std(axis=0) > 0, samples.xdot.std(axis=0), 1.0), 1)
        found, name, errors = choose_representation(space, units, _learners(model, units))
    choices = replace(model.choices, representation=name, representations=errors)
    model = replace(model, choices=choices)
    return constrain(replace(model, constraint_fit=found), found.gamma)


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


def _by_trajectory(config: Config) -> bool:
    return config.hold_out == "trajectories"


def _periodic(dataset: Dataset, gamma: Gamma) -> tuple[int, ...]:
    """States in which Γ repeats after 2π: declared angles, or those it sees by sines alone."""
    if not isinstance(gamma, DictionaryConstraint):
        return dataset.angle_indices
    used = np.any(np.asarray(gamma.weights) != 0, axis=(0, 2))
    labels = {label for label, kept in zip(gamma.library.labels, used, strict=True) if kept}
    return tuple(i for i, name in enumerate(dataset.state_names) if name not in labels)


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
