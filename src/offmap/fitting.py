"""Fit the whole pipeline: the one place that composes the stages."""

from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.config import Config, Preset
from offmap.constraint import DictionaryConstraint, Library, fit_dictionary
from offmap.data import Dataset
from offmap.dynamics import Dynamics, fit_dynamics, reduced_inputs, targets
from offmap.features import Features
from offmap.gp import GPConfig, choose_kernel
from offmap.heldout import edge_error
from offmap.model import Model, Predictor, learn_constraint, stage_keys
from offmap.pseudometric import Reduction
from offmap.sparsity import Sparsity, find_sparsity
from offmap.summary import Choices
from offmap.tangent import TangentFrame, tangent_frame
from offmap.types import Gamma, Progress, silent

_LEVEL = 1.02  # held-out errors within this ratio count as equal
_FLOOR = 1e-4  # and so do all errors below this share of the spread of x'


def fit(
    dataset: Dataset,
    preset: Preset = "default",
    *,
    config: Config | None = None,
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
        sparsify: False uses all inputs (the paper's GP), True the retained ones (its DGP).
        project: "none", "learned", or a known Γ: a function from a state to (c, n + 1).
        history: number of past commands to use as further inputs, for actuators that lag.
        seed: makes the result reproducible.
        progress: called with a sentence as each stage begins.
    """
    dataset = dataset.with_history(history) if history else dataset
    dataset.check_inputs()
    config = config or Config.preset(preset)
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
    samples = dataset.samples()
    primary = int(np.argmax(np.bincount(samples.source)))
    keys = stage_keys(seed)

    progress("pseudometric: which inputs matter")
    sparsity = _sparsify(dataset, samples.xdot, primary, keys.pseudometric, config)
    progress("dynamics: fitting one GP per state derivative")
    world, kernels = _fit_world(dataset, sparsity.reduction, primary, keys.dynamics, config)
    model = Model(
        Predictor(world, None),
        world,
        config,
        dataset,
        dataset.sources[primary],
        sparsity.metric,
        None,
        Choices(kernels, {}, disagreement=sparsity.disagreement),
        seed,
    )
    progress("constraint: which motions are impossible")
    if known is not None:
        return constrain(model, known)
    return model if config.project == "none" else _discover(model)


def constrain(model: Model, gamma: Gamma | None) -> Model:
    """The model made to obey Γ in the way its settings say; None takes any constraint away.

    By projection alone (the paper), or by whatever predicts the held-out edge of the data best:
    no constraint, projection onto it, or dynamics learned in its tangent frame.
    """
    projected = model.with_constraint(gamma, model.constraint_fit)
    if gamma is None or not model.config.tangent:
        return projected
    samples = model.dataset.samples()
    primary = model.dataset.sources.index(model.primary)
    tangent = _fit_tangent(model, gamma, primary)
    candidates = {
        "none": model.with_constraint(None, model.constraint_fit),
        "projected": projected,
        "tangent": replace(projected, predictor=Predictor(tangent, gamma)),
    }
    scores = {
        name: edge_error(candidate.predictor, samples, primary, _by_trajectory(model.config))
        for name, candidate in candidates.items()
    }
    best = _most_structure(scores)
    return replace(candidates[best], choices=replace(model.choices, structure=scores, used=best))


def _most_structure(scores: dict[str, float]) -> str:
    """The last candidate, each having more structure than the one before, that is no worse."""
    floored = {name: max(score, _FLOOR) for name, score in scores.items()}
    least = min(floored.values())
    return [name for name, score in floored.items() if score <= _LEVEL * least][-1]


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


def _fit_world(
    dataset: Dataset, reduction: Reduction, primary: int, key: Array, config: Config
) -> tuple[Dynamics, dict[str, float]]:
    """Dynamics in the coordinates of the data."""
    gp, scores = _choose(dataset, reduction, None, primary, key, config)
    return fit_dynamics(dataset.samples(), reduction, key=key, config=gp), scores


def _fit_tangent(model: Model, gamma: Gamma, primary: int) -> Dynamics:
    """Dynamics in the tangent frame of Γ, on the inputs that matter there."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).tangent
    samples = dataset.samples()
    own = samples.x[samples.source == primary]
    frame = tangent_frame(gamma, own, _periodic(dataset, gamma))
    reduction = _sparsify(dataset, targets(samples, frame), primary, key, config).reduction
    gp, _ = _choose(dataset, reduction, frame, primary, key, config)
    return fit_dynamics(samples, reduction, key=key, config=gp, frame=frame)


def _choose(
    dataset: Dataset,
    reduction: Reduction,
    frame: TangentFrame | None,
    primary: int,
    key: Array,
    config: Config,
) -> tuple[GPConfig, dict[str, float]]:
    """GP settings with the candidate kernel that best extrapolates, and the scores of all."""
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
    """Learn the constraint: rows of normal spaces, or short equations where they explain more."""
    with_rows = learn_constraint(model)
    found = with_rows.constraint_fit
    assert found is not None
    if model.config.dictionary:
        dataset = model.dataset
        equations = fit_dictionary(
            found,
            dataset.samples(),
            dataset.sources.index(model.primary),
            np.sqrt(np.asarray(model.world.gps.noise[:, 0])),
            Library(dataset.state_names, dataset.angle_indices or tuple(range(dataset.n))),
            key=stage_keys(model.seed).constraint,
            config=model.config.constraint,
        )
        if equations.c >= found.c:
            found = equations
    return constrain(replace(model, constraint_fit=found), found.gamma)


def _by_trajectory(config: Config) -> bool:
    return config.hold_out == "trajectories"


def _periodic(dataset: Dataset, gamma: Gamma) -> tuple[int, ...]:
    """States in which Γ repeats after 2π: declared angles, or those it sees by sines alone."""
    if not isinstance(gamma, DictionaryConstraint):
        return dataset.angle_indices
    used = np.any(np.asarray(gamma.weights) != 0, axis=(0, 2))
    labels = {label for label, kept in zip(gamma.library.labels, used, strict=True) if kept}
    return tuple(i for i, name in enumerate(dataset.state_names) if name not in labels)


def _check_gamma(gamma: Gamma, dataset: Dataset) -> None:
    shape = np.shape(gamma(jnp.asarray(dataset.samples().x[0])))
    if len(shape) != 2 or shape[1] != dataset.n + 1:
        raise ValueError(
            f"A known Γ maps a state of {dataset.n} numbers to a (c, {dataset.n + 1}) matrix "
            f"[G g]; got shape {shape}. Append the column g, zeros if there is no bias."
        )
