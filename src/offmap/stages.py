"""The stages that are run in the coordinates of the data and again in those of a frame."""

from dataclasses import dataclass, field, replace

import jax
import numpy as np
from jaxtyping import Array

from offmap.config import Config
from offmap.data import Dataset, Samples
from offmap.dynamics import (
    Dynamics,
    Frame,
    fit_dynamics,
    reduced_inputs,
    targets,
)
from offmap.features import Features
from offmap.gp import GPConfig, choose_kernel
from offmap.gp.kernels import KernelName
from offmap.gp.selection import edge_points
from offmap.gp.verdict import OF_DRIVES, level_with_best
from offmap.mlp import MLPConfig
from offmap.pseudometric import Reduction
from offmap.sparsity import Sparsity, find_sparsity

_OF_FRAMES = ("proportional", "quadratic")
_LEVEL = 1.05  # errors within this ratio count as equal
_FLOOR = 3e-4  # errors below this share of the outputs' spread leave nothing to improve


@dataclass(frozen=True)
class _Choice:
    """Settings with the kernel that best extrapolates to held-out data."""

    settings: GPConfig | MLPConfig
    affine_in: tuple[int, ...] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    """Errors of all kernels; empty where there was none to choose."""
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Of the one chosen, by held-out groups."""

    @property
    def score(self) -> float:
        """Held-out error of the kernel chosen."""
        return float(np.sqrt(np.mean(self.errors)))


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
    frame: Frame | None,
    primary: int,
    key: Array,
    config: Config,
    simplest: bool = True,
) -> tuple[Dynamics, str, dict[str, float]]:
    """Dynamics in the coordinates of the data or of a frame, from as many samples as it takes.

    Also the kernel, and the scores of all that were tried. In a frame, the controls are taken alone
    where they predict held-out data as well: `find_inputs` judges by bumps, and a kernel that suits
    the controls may leave nothing for a state to explain. With `simplest` off, the kernel of the
    least score is taken for either set of inputs.
    """
    choice = _choose(dataset, reduction, frame, primary, key, config, simplest=simplest)
    if frame is not None and choice.scores and config.sparsify and choice.score > _FLOOR:
        alone = reduction.only(range(dataset.n, dataset.n + dataset.m))
        if 0 < len(alone.names) < len(reduction.names):
            other = _choose(
                dataset, alone, frame, primary, key, config, edge_of=reduction, simplest=simplest
            )
            if _as_good(other, choice, config):
                reduction, choice = alone, other
    samples = thinned(dataset.samples(), primary, key, config.discovery_points)
    settings = choice.settings
    kernel = settings.kernel if isinstance(settings, GPConfig) else ""
    dynamics = fit_dynamics(
        samples, reduction, key=key, config=settings, frame=frame, affine_in=choice.affine_in
    )
    return dynamics, kernel, choice.scores


def _as_good(fewer: _Choice, more: _Choice, config: Config) -> bool:
    """Whether fewer inputs predict held-out data as well; of few drives, unless clearly worse."""
    if by_trajectory(config):
        pair = {"more": more.errors, "fewer": fewer.errors}
        return "fewer" in level_with_best(pair, _FLOOR, unsure=OF_DRIVES)
    return fewer.score <= _LEVEL * more.score


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
    frame: Frame | None,
    primary: int,
    key: Array,
    config: Config,
    edge_of: Reduction | None = None,
    simplest: bool = True,
) -> _Choice:
    """Which kernel suits the inputs kept; the edge is that of the inputs `edge_of` keeps."""
    if isinstance(config.dynamics, MLPConfig):
        return _Choice(config.dynamics)
    if len(config.kernels) == 1:
        return _Choice(replace(config.dynamics, kernel=config.kernels[0]))
    kernels = config.kernels if frame is not None else _of_the_world(config.kernels)
    samples = dataset.samples()
    own = np.flatnonzero(samples.source == primary)
    own = own[np.asarray(jax.random.permutation(key, len(own)))[: config.selection_points]]
    groups = samples.trajectory[own] if by_trajectory(config) else None
    found = choose_kernel(
        reduced_inputs(samples, reduction)[own],
        targets(samples, frame)[own],
        kernels,
        key=key,
        config=replace(config.dynamics, hyper_points=config.selection_points),
        controls=reduction.rows_of(range(dataset.n, dataset.n + dataset.m)),
        groups=groups,
        edge=edge_points(reduced_inputs(samples, edge_of or reduction)[own], groups),
        by_drives=frame is not None and by_trajectory(config),
        simplest=simplest,
    )
    settings = replace(config.dynamics, kernel=found.name)
    scores = {str(name): score for name, score in found.scores.items()}
    return _Choice(settings, found.affine_in, scores, found.errors)


def _of_the_world(kernels: tuple[KernelName, ...]) -> tuple[KernelName, ...]:
    """Kernels for the coordinates of the data, rather than of a frame.

    A robot's rates drive each other by their products, and it rests where nothing is commanded, but
    in the frame that moves with it; in the world these products come multiplied by sines, where a
    quadratic would go astray without data.
    """
    return tuple(name for name in kernels if name not in _OF_FRAMES) or kernels


def by_trajectory(config: Config) -> bool:
    """Whether whole trajectories are held out, as samples next to each other are alike."""
    return config.hold_out == "trajectories"
