"""Predictions of data that were held out: rollouts with bands, and how errors grow.

The GPs are conditioned again without the held-out samples, at the hyperparameters, inputs and
constraint of the whole fit. What those took from the held-out samples is therefore not held out.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from offmap.calls import at_each
from offmap.data.trajectory import unwrap
from offmap.features import Features
from offmap.gp.selection import edge_points
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.projection import project, soft_project
from offmap.report.variants import given, used_variant
from offmap.rollout import rollout
from offmap.tangent import TangentFrame

FOLDS = 5
STEPS = 100  # longest rollout that is judged
POINTS = 500  # most samples conditioned on: exact GPs cost their cube
_WINDOWS = 12  # most rollouts judged in a fold
_SHOWN = 6
_TESTED = 500  # most one-step predictions in a fold
_NEGLIGIBLE = 1e-9  # share of a state's spread that no band needs to cover


@dataclass(frozen=True)
class Window:
    """A stretch of one trajectory: T controls and the T + 1 measured states around them."""

    trajectory: int
    start: int
    x: Float[np.ndarray, "S n"]
    """Angles unwrapped."""
    u: Float[np.ndarray, "T m"]
    fold: int
    """Held out together."""


@dataclass(frozen=True)
class Trial:
    """One held-out window, what each variant predicts for it, and the model's uncertainty."""

    window: Window
    predicted: dict[str, np.ndarray]
    """States (T + 1, n) by variant."""
    std: np.ndarray | None = None
    """Of the states the model itself predicts."""


@dataclass(frozen=True)
class HeldOut:
    """How well a model predicts what it was not conditioned on."""

    trials: list[Trial]
    """Every rollout judged, from the best predicted to the worst; some of them have a band."""
    whole: bool
    """Whole trajectories were held out; else stretches of trajectories whose rest was kept."""
    thinned: bool
    """No more than POINTS of the other samples were conditioned on."""
    distance: Float[np.ndarray, " tested"]
    """From each one-step test to the nearest sample known, in spreads of the inputs."""
    one_step: dict[str, np.ndarray]
    """Error of each one-step test by variant, in spreads of x'."""
    coverage: float
    """Share of the measured states beside a band that lie within two standard deviations."""

    @property
    def shown(self) -> list[Trial]:
        """The trials with a band."""
        return [trial for trial in self.trials if trial.std is not None]


def hold_out(model: Model) -> HeldOut:
    """Judge the model on its own data, each part predicted from the others."""
    windows, whole = _cut(model)
    samples = model.dataset.samples()
    held = [_inside(model, [w for w in windows if w.fold == k]) for k in range(FOLDS)]
    held.append(edge_points(np.concatenate([samples.x, samples.u], axis=1)))
    fewest = min(int(np.sum(~mask)) for mask in held)  # equal sizes share compiled programs
    known = [_some(np.flatnonzero(~mask), min(fewest, POINTS)) for mask in held]
    refits = [given(model, rows) for rows in known]
    most = min(max(int(np.sum(mask)) for mask in held), _TESTED)
    tests = [
        _one_step(model, refit, rows, _some(np.flatnonzero(mask), _TESTED), most)
        for refit, rows, mask in zip(refits, known, held, strict=True)
    ]
    trials = [
        trial
        for k in range(FOLDS)
        for trial in _trials(model, refits[k], [w for w in windows if w.fold == k], windows)
    ]
    trials.sort(key=lambda trial: state_error(model, trial, used_variant(model))[-1])
    for i in np.unique(np.linspace(0, len(trials) - 1, _SHOWN).round().astype(int)):
        predictor = refits[trials[i].window.fold][used_variant(model)]
        trials[i] = replace(trials[i], std=_band(model, predictor, trials[i].window, windows))
    return HeldOut(
        trials,
        whole,
        fewest > POINTS,
        np.concatenate([distance for distance, _ in tests]),
        {name: np.concatenate([errors[name] for _, errors in tests]) for name in refits[0]},
        _coverage(model, trials),
    )


def state_error(model: Model, trial: Trial, variant: str | None) -> Float[np.ndarray, " S"]:
    """Root mean square over states, each in its spread over the data; None stands still."""
    x = trial.window.x
    predicted = x[:1] if variant is None else trial.predicted[variant]
    with np.errstate(over="ignore", invalid="ignore"):  # rollouts may diverge
        error = np.sqrt(np.mean(((x - predicted) / spread(model.dataset.samples().x)) ** 2, axis=1))
    return np.where(np.isfinite(error), error, np.inf)


def spread(values: Float[np.ndarray, "N k"]) -> Float[np.ndarray, " k"]:
    """Standard deviation of every column, or 1 where it does not vary."""
    deviation = values.std(axis=0)
    return np.where(deviation > 0, deviation, 1.0)


def _cut(model: Model) -> tuple[list[Window], bool]:
    """Stretches of at most STEPS steps; those of a trajectory are held out together if possible."""
    dataset = model.dataset
    whole = len(dataset) >= FOLDS
    total = sum(trajectory.T for trajectory in dataset)
    longest = STEPS if whole else max(1, min(STEPS, total // (2 * FOLDS)))
    windows: list[Window] = []
    for index, trajectory in enumerate(dataset):
        x = unwrap(np.asarray(trajectory.x), dataset.angle_indices)
        steps = min(trajectory.T, len(x) - 1)
        for start, stop in pairwise([*range(0, steps, longest), steps]):
            fold = (index if whole else len(windows)) % FOLDS
            u = np.asarray(trajectory.u[start:stop])
            windows.append(Window(index, start, x[start : stop + 1], u, fold))
    return windows, whole


def _inside(model: Model, windows: list[Window]) -> np.ndarray:
    """Which samples lie in one of the windows."""
    samples = model.dataset.samples()
    first = np.searchsorted(samples.trajectory, np.arange(len(model.dataset)))
    mask = np.zeros(len(samples), bool)
    for window in windows:
        start = first[window.trajectory] + window.start
        mask[start : start + len(window.u)] = True
    return mask


def _some(rows: np.ndarray, count: int) -> np.ndarray:
    """At most so many of the rows; a stride could fall in step with the trajectories."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:count])


def _trials(
    model: Model, refit: dict[str, Predictor], windows: list[Window], every: list[Window]
) -> list[Trial]:
    mine = [windows[i] for i in _some(np.arange(len(windows)), _WINDOWS)]
    # One shape for all folds: short windows are padded, and so are folds with few of them.
    x0 = np.stack([*(w.x[0] for w in mine), *(mine[:1][0].x[0],) * (_WINDOWS - len(mine))])
    u = np.stack(
        [_padded(w, every) for w in mine] + [_padded(mine[0], every)] * (len(x0) - len(mine))
    )
    dt, integrator = model.dataset.dt, model.integrator
    states = {name: np.asarray(_roll(p, x0, u, dt, integrator)) for name, p in refit.items()}
    return [
        Trial(window, {name: x[i, : len(window.x)] for name, x in states.items()})
        for i, window in enumerate(mine)
    ]


def _padded(window: Window, every: list[Window]) -> np.ndarray:
    longest = max(len(w.u) for w in every)
    return np.concatenate([window.u, np.repeat(window.u[-1:], longest - len(window.u), axis=0)])


def _one_step(
    model: Model, refit: dict[str, Predictor], known: np.ndarray, tested: np.ndarray, most: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Distance from the known samples, and error by variant, of the tested samples."""
    padded = np.resize(tested, most)  # equal sizes share compiled programs
    samples, dataset = model.dataset.samples(), model.dataset
    features = Features(dataset.input_names, dataset.angle_indices)
    inputs = np.concatenate([samples.x, samples.u], axis=1)
    seen = np.asarray(at_each(features, inputs))
    seen = seen / spread(seen)
    distance, _ = cKDTree(seen[known]).query(seen[tested])
    size = spread(samples.xdot)
    errors = {}
    for name, predictor in refit.items():
        xdot = np.asarray(at_each(predictor, samples.x[padded], samples.u[padded]))
        xdot = xdot[: len(tested)]
        errors[name] = np.sqrt(np.mean(((xdot - samples.xdot[tested]) / size) ** 2, axis=1))
    return distance, errors


def _band(
    model: Model, predictor: Predictor, window: Window, every: list[Window]
) -> Float[np.ndarray, "S n"]:
    u = _padded(window, every)
    dt, integrator = model.dataset.dt, model.integrator
    return np.asarray(_deviation(predictor, window.x[0], u, dt, integrator))[: len(window.x)]


def _coverage(model: Model, trials: list[Trial]) -> float:
    slack = _NEGLIGIBLE * spread(model.dataset.samples().x)
    inside = [
        np.abs(t.window.x - t.predicted[used_variant(model)])[1:] <= 2 * t.std[1:] + slack
        for t in trials
        if t.std is not None
    ]
    return float(np.mean(np.concatenate([np.ravel(share) for share in inside])))


@eqx.filter_jit
def _roll(predictor, x0, u, dt, integrator):
    return jax.vmap(lambda x, v: rollout(predictor, x, v, dt, integrator))(x0, u)


@eqx.filter_jit
def _deviation(predictor, x0, u, dt, integrator):
    """Standard deviation of every state of a rollout, by an unscented transform.

    What a GP gets wrong at one state it gets wrong at the next, so one standard normal z for each
    of its p outputs holds along the whole rollout: x' moves by z times its standard deviation. The
    2p points ±√p eⱼ have the mean and covariance of z, and each obeys the constraint.
    """
    dynamics = predictor.dynamics

    def shifted(x, u, z):
        inputs = dynamics.reduction(jnp.concatenate([x, u]))
        variance = dynamics.regressor.variance(inputs)
        output = dynamics.regressor(inputs) + z * jnp.sqrt(variance)
        if dynamics.frame is not None:
            basis, drift = dynamics.frame(x)
            return drift + basis @ output
        if predictor.gamma is None:
            return output
        if predictor.softness is not None:
            return soft_project(output, variance, predictor.gamma(x), predictor.softness)[0]
        return project(output, predictor.gamma(x))

    p = dynamics.frame.basis.shape[1] if isinstance(dynamics.frame, TangentFrame) else x0.shape[0]
    points = jnp.sqrt(p) * jnp.concatenate([jnp.eye(p), -jnp.eye(p), jnp.zeros((1, p))])
    states = jax.lax.map(
        lambda z: rollout(lambda x, v: shifted(x, v, z), x0, u, dt, integrator), points
    )
    return jnp.sqrt(jnp.mean((states[:-1] - states[-1:]) ** 2, axis=0))
