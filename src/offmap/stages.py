"""The stages that are run in the coordinates of the data and again in those of a frame."""

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array

from offmap.config import Config
from offmap.data import Dataset, Samples
from offmap.dynamics import (
    Dynamics,
    fit_dynamics,
    reduced_inputs,
    targets,
)
from offmap.features import Features
from offmap.gp import GPConfig, choose_kernel
from offmap.mlp import MLPConfig
from offmap.pseudometric import Reduction
from offmap.sparsity import Sparsity, find_sparsity
from offmap.tangent import TangentFrame


def find_inputs(
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
        groups=samples.trajectory[own] if by_trajectory(config) else None,
    )


def fit_stage(
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
    samples = thinned(dataset.samples(), primary, key, config.discovery_points)
    kernel = settings.kernel if isinstance(settings, GPConfig) else ""
    return fit_dynamics(samples, reduction, key=key, config=settings, frame=frame), kernel, scores


def thinned(samples: Samples, primary: int, key: Array, most: int | None) -> Samples:
    """All samples but those of the primary source beyond `most`, which are drawn at random."""
    own = np.flatnonzero(samples.source == primary)
    if most is None or len(own) <= most:
        return samples
    chosen = own[np.asarray(jax.random.permutation(key, len(own)))[:most]]
    others = np.flatnonzero(samples.source != primary)
    return samples.take(np.sort(np.concatenate([chosen, others])))


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
        groups=samples.trajectory[own] if by_trajectory(config) else None,
    )
    return replace(config.dynamics, kernel=kernel), {
        str(name): score for name, score in scores.items()
    }


def by_trajectory(config: Config) -> bool:
    """Whether whole trajectories are held out, as samples next to each other are alike."""
    return config.hold_out == "trajectories"
