"""How well a predictor extrapolates: fitted to the middle of the data, judged at its edge."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.config import stage_keys
from offmap.data import Dataset, Samples
from offmap.dynamics import Dynamics, fit_dynamics
from offmap.gp import GPConfig, KernelName
from offmap.gp.selection import by_group, edge_points, folds_of, groups_by_reach
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.rollout import Integrator, rollout
from offmap.tangent import TangentFrame

_POINTS = 1500  # larger data sets are thinned
_HELD_OUT = 5  # every fifth trajectory
_HORIZON = 50  # steps of a rollout at most
_ROLLED = 40  # trajectories rolled out at most


@dataclass(frozen=True)
class HeldOut:
    """Errors on trajectories left out of the data, in units of the spread of what is predicted."""

    one_step: float
    """Root mean square error of x'."""
    rollout: float
    """Root mean square error of the states of a rollout from the true start."""
    steps: int
    """Length of the rollouts."""
    trajectories: int
    """Number of trajectories left out."""


def trajectory_errors(model: Model) -> dict[str, HeldOut]:
    """Errors on every fifth trajectory of the primary source, with and without what was found.

    That is: all inputs or the kept ones, free or projected, and the model itself if it is neither
    (`used_structure` names it). The GPs are conditioned on the other trajectories; hyperparameters,
    retained inputs and the constraint remain those of the whole fit, so these errors judge the data
    and the structure more than the search for them. Only the GPs of all inputs, which the fit does
    not have where it dropped some, are fitted here, with the kernel of the others. Empty if there
    are fewer than three trajectories.
    """
    dataset, samples = model.dataset, model.dataset.samples()
    own = [i for i, log in enumerate(dataset) if log.source == model.primary]
    if len(own) < 3:
        return {}
    out = own[:: max(2, min(_HELD_OUT, len(own)))]
    kept = np.flatnonzero(np.isin(samples.trajectory, [i for i in own if i not in out]))
    kept = kept[:: max(1, len(kept) // _POINTS)]
    inside = samples.take(kept)
    outside = samples.take(np.flatnonzero(np.isin(samples.trajectory, out)))
    steps = min(_HORIZON, *(len(dataset.trajectories[i].x) - 1 for i in out))
    true = np.stack([dataset.trajectories[i].x[: steps + 1] for i in out])
    controls = np.stack([dataset.trajectories[i].u[:steps] for i in out])
    errors = {}
    for name, candidate in _variants(model, inside).items():
        refitted = candidate.conditioned_on(inside)
        predicted = at_each(refitted, outside.x, outside.u)
        states = _rollouts(refitted, true[:, 0], controls, dataset.dt, model.integrator)
        off = _apart(np.asarray(states), true, dataset)
        errors[name] = HeldOut(
            _relative(np.asarray(predicted) - outside.xdot, samples.xdot),
            _relative(off, samples.x),
            steps,
            len(out),
        )
    return errors


def used_structure(model: Model) -> str:
    """Which of the variants of `trajectory_errors` the model is."""
    own = model.predictor
    if own.dynamics.frame is not None:
        return "tangent" if isinstance(own.dynamics.frame, TangentFrame) else "turned"
    if own.softness is not None:
        return "soft"
    inputs = "kept inputs" if _dropped(model) else "all inputs"
    return inputs if own.gamma is None else f"{inputs}, projected"


def _variants(model: Model, inside: Samples) -> dict[str, Predictor]:
    """The model with and without its sparsity and its constraint, and as it is."""
    worlds = {"all inputs": model.world}
    if _dropped(model):
        worlds = {"all inputs": _of_all_inputs(model, inside), "kept inputs": model.world}
    variants = {}
    for name, world in worlds.items():
        variants[name] = Predictor(world, None)
        if model.predictor.gamma is not None:
            variants[f"{name}, projected"] = Predictor(world, model.predictor.gamma)
    return {**variants, used_structure(model): model.predictor}


def _dropped(model: Model) -> bool:
    """Whether the dynamics do without some input."""
    return len(model.world.reduction.names) < len(model.dataset.input_names)


def _of_all_inputs(model: Model, inside: Samples) -> Dynamics:
    config = model.config.dynamics
    if isinstance(config, GPConfig) and model.choices.kernel:
        config = replace(config, kernel=cast(KernelName, model.choices.kernel))
    everything = Reduction.everything(model.dataset.input_names, model.world.reduction.features)
    return fit_dynamics(inside, everything, key=stage_keys(model.seed).dynamics, config=config)


def _relative(error: np.ndarray, of: np.ndarray) -> float:
    spread = of.std(axis=0)
    return float(np.sqrt(np.mean((error / np.where(spread > 0, spread, 1.0)) ** 2)))


def edge_errors(
    candidates: Mapping[str, Predictor],
    samples: Samples,
    primary: int,
    by_trajectory: bool = False,
    along: tuple[int, ...] = (),
) -> dict[str, Float[np.ndarray, " G"]]:
    """Mean squared one-step errors at the outermost fifth of the primary source's samples.

    One number for each trajectory that has samples there; or, with `by_trajectory`, for every
    trajectory, left out with others (`_folds`). Regressors are conditioned again on the rest, at
    their hyperparameters. Components of x' are measured in units of their spread.
    """
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // _POINTS)]
    spread = samples.xdot[own].std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    if by_trajectory:
        outer = [np.isin(samples.trajectory[own], far) for far in _folds(samples, own, along)]
    else:
        outer = [edge_points(np.concatenate([samples.x, samples.u], axis=1)[own])]
    errors: dict[str, list[np.ndarray]] = {name: [] for name in candidates}
    for fold in folds_of(outer):
        out = samples.take(own[fold.outside])
        for name, refitted in _again(candidates, samples.take(own[fold.inside])):
            error = (np.asarray(at_each(refitted, out.x, out.u)) - out.xdot) / spread
            errors[name].append(by_group(error[: fold.count], out.trajectory[: fold.count]))
    if not along:
        return {name: np.concatenate(each) for name, each in errors.items()}
    drives = [np.unique(samples.trajectory[own[edge]]) for edge in outer]
    return {name: _by_trajectory(drives, each) for name, each in errors.items()}


def rollout_errors(
    candidates: Mapping[str, Predictor],
    dataset: Dataset,
    primary: int,
    integrator: Integrator,
    by_trajectory: bool = False,
    along: tuple[int, ...] = (),
) -> dict[str, Float[np.ndarray, " G"]]:
    """Mean squared errors of rollouts along each of the outermost fifth of the trajectories.

    With `by_trajectory`, along every trajectory, left out with others (`_folds`). Regressors are
    conditioned again on the rest. Noise that hides a wrong constraint from the error of one step
    averages out along a rollout. Components are measured by how far they move. Empty where there
    are fewer than five trajectories, or where they are too short to roll out.
    """
    samples = dataset.samples()
    own = np.flatnonzero(samples.source == primary)
    left_out = _folds(samples, own, along)
    left_out = left_out if by_trajectory else left_out[-1:]
    drives = [far[:_ROLLED] for far in left_out]
    every = np.unique(np.concatenate(drives))
    lengths = (min(len(log.u), len(log.x) - 1) for log in (dataset.trajectories[i] for i in every))
    steps = min(_HORIZON, *lengths)
    if len(np.unique(samples.trajectory[own])) < 5 or steps < 5:
        return {}
    true = np.stack([dataset.trajectories[i].x[: steps + 1] for i in every])
    moved = np.sqrt(np.mean(_apart(true, true[:, :1], dataset) ** 2, axis=(0, 1)))
    own = own[:: max(1, len(own) // _POINTS)]
    errors: dict[str, list[np.ndarray]] = {name: [] for name in candidates}
    folds = folds_of([np.isin(samples.trajectory[own], unseen) for unseen in left_out])
    for far, fold in zip(drives, folds, strict=True):
        true = np.stack([dataset.trajectories[i].x[: steps + 1] for i in far])
        controls = np.stack([dataset.trajectories[i].u[:steps] for i in far])
        for name, refitted in _again(candidates, samples.take(own[fold.inside])):
            states = np.asarray(_rollouts(refitted, true[:, 0], controls, dataset.dt, integrator))
            error = _apart(states, true, dataset) / np.where(moved > 0, moved, 1.0)
            errors[name].append(np.mean(error**2, axis=(1, 2)))
    together = partial(_by_trajectory, drives) if along else np.concatenate
    return {name: together(each) for name, each in errors.items()}


def _again(
    candidates: Mapping[str, Predictor], samples: Samples
) -> Iterator[tuple[str, Predictor]]:
    """What the candidates would be with these samples instead of their own.

    Those that differ in how they obey a constraint alone share the work.
    """
    done: dict[int, Dynamics] = {}
    for name, one in candidates.items():
        if id(one.dynamics) not in done:
            done[id(one.dynamics)] = one.conditioned_on(samples).dynamics
        yield name, Predictor(done[id(one.dynamics)], one.gamma, one.softness)


def _folds(samples: Samples, own: np.ndarray, along: tuple[int, ...] = ()) -> list[np.ndarray]:
    """Fifths of the trajectories, from those in the middle of the data to the outermost.

    With `along`, two halves for each of these states, split at the median: what depends on such a
    state has to extrapolate from one half to the other. Fifths of drives that were all made in one
    place would not ask that, and what suits the place would look best.
    """
    trajectory = samples.trajectory[own]
    if not along:
        inputs = np.concatenate([samples.x, samples.u], axis=1)[own]
        codes = groups_by_reach(inputs, trajectory)
        return [fold for fold in np.array_split(codes, min(_HELD_OUT, len(codes))) if len(fold)]
    codes, index = np.unique(trajectory, return_inverse=True)
    folds: list[np.ndarray] = []
    for state in along:
        mean = np.bincount(index, samples.x[own, state]) / np.bincount(index)
        folds += [np.sort(half) for half in np.array_split(codes[np.argsort(mean)], 2)]
    return folds


def _by_trajectory(
    folds: list[np.ndarray], errors: list[Float[np.ndarray, " F"]]
) -> Float[np.ndarray, " G"]:
    """Mean error of each trajectory over the folds that it is in."""
    _, index = np.unique(np.concatenate(folds), return_inverse=True)
    return np.bincount(index, np.concatenate(errors)) / np.bincount(index)


def _apart(a: np.ndarray, b: np.ndarray, dataset: Dataset) -> np.ndarray:
    """A − b, the short way round for angles."""
    off, angles = a - b, list(dataset.angle_indices)
    off[..., angles] = np.arctan2(np.sin(off[..., angles]), np.cos(off[..., angles]))
    return off


@eqx.filter_jit
def _rollouts(predictor, x0, controls, dt, integrator):
    return jax.vmap(lambda x, u: rollout(predictor, x, u, dt, integrator))(x0, controls)
