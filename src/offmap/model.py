"""Fit the whole pipeline and hold the result: the one place that composes the stages."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.config import Config, Preset
from offmap.constraint import Equation, fit_constraint, readable_equations
from offmap.constraint.learned import ConstraintFit
from offmap.data import Dataset, Trajectory
from offmap.dynamics import Dynamics, fit_dynamics, update_dynamics
from offmap.projection import project as project_onto
from offmap.projection import tangent_projector
from offmap.pseudometric import Pseudometric, Reduction, fit_pseudometric, retained_inputs
from offmap.rollout import rollout
from offmap.summary import summarise
from offmap.types import Gamma, Progress, silent


class Predictor(eqx.Module):
    """The numbers behind a model: f̂ and, if there is a constraint, Γ."""

    dynamics: Dynamics
    gamma: Gamma | None

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """f̂(x, u) projected onto {x' : G(x) x' + g(x) = 0}."""
        xdot = self.dynamics(x, u)
        return xdot if self.gamma is None else project_onto(xdot, self.gamma(x))

    def with_std(
        self, x: Float[Array, " n"], u: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Prediction and the standard deviation of its components after projection."""
        variance = self.dynamics.variance(x, u)
        if self.gamma is not None:
            projector = tangent_projector(self.gamma(x))
            variance = projector**2 @ variance
        return self(x, u), jnp.sqrt(variance)


@dataclass(frozen=True)
class Retained:
    """Names of the inputs kept by the dynamics, and by each row of the constraint."""

    dynamics: tuple[str, ...]
    constraint: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Constraints:
    """The constraints a model obeys: c rows of Γ(x) [x'; 1] = 0."""

    c: int
    gamma: Callable[[Any], np.ndarray]
    """State (…, n) to Γ (…, c, n + 1)."""
    singular_values: np.ndarray
    """Median spectrum from which c was read; empty if Γ was given."""
    equations: tuple[Equation, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """Learned dynamics x' = f̂(x, u) that holds to learned constraints; a vector field."""

    predictor: Predictor
    config: Config
    dataset: Dataset
    primary: str
    """The source with the most samples, which sets the hyperparameters."""
    pseudometric: Pseudometric | None
    constraint_fit: ConstraintFit | None
    seed: int

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """X' at one state and control; works under jax.jit, vmap and grad."""
        return self.predictor(x, u)

    @overload
    def predict(self, x: Any, u: Any, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(
        self, x: Any, u: Any, return_std: Literal[True]
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def predict(
        self, x: Any, u: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """X' for states (…, n) and controls (…, m) with any leading dimensions.

        With `return_std=True` also the standard deviation of the latent x' after projection.
        """
        x, u = _batch(x, self.dataset.n, "x", 1), _batch(u, self.dataset.m, "u", 1)
        shape = _broadcast(x.shape[:-1], u.shape[:-1], "x and u")
        flat_x = np.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1])
        flat_u = np.broadcast_to(u, (*shape, u.shape[-1])).reshape(-1, u.shape[-1])
        results = _predict(self.predictor, flat_x, flat_u, return_std)
        mean, std = (np.asarray(result).reshape(*shape, -1) for result in results)
        return (mean, std) if return_std else mean

    def rollout(self, x0: Any, controls: Any, dt: float | None = None) -> np.ndarray:
        """States (…, T + 1, n) from starts (…, n) under controls (…, T, m), each held for dt."""
        x0 = _batch(x0, self.dataset.n, "x0", 1)
        controls = _batch(controls, self.dataset.m, "controls", 2)
        shape = _broadcast(x0.shape[:-1], controls.shape[:-2], "x0 and controls")
        flat_x = np.broadcast_to(x0, (*shape, x0.shape[-1])).reshape(-1, x0.shape[-1])
        steps = controls.shape[-2:]
        flat_u = np.broadcast_to(controls, (*shape, *steps)).reshape(-1, *steps)
        states = _rollout(
            self.predictor, flat_x, flat_u, dt or self.dataset.dt, self.config.integrator
        )
        return np.asarray(states).reshape(*shape, steps[0] + 1, -1)

    @property
    def retained(self) -> Retained:
        """Which inputs the dynamics and each constraint row depend on."""
        rows = self.constraint_fit.retained if self.constraint_fit else ()
        return Retained(self.predictor.dynamics.reduction.names, rows)

    @cached_property
    def constraints(self) -> Constraints:
        """The constraints in force: how many, Γ, the spectrum, and readable equations."""
        gamma, fit = self.predictor.gamma, self.constraint_fit
        spectrum = fit.normal_space.singular_values if fit else np.zeros(0)
        if gamma is None:
            n = self.dataset.n
            return Constraints(0, lambda x: np.zeros((*np.shape(x)[:-1], 0, n + 1)), spectrum, ())

        def evaluate(x: Any) -> np.ndarray:
            x = _batch(x, self.dataset.n, "x", 1)
            rows = _gamma(gamma, x.reshape(-1, x.shape[-1]))
            return np.asarray(rows).reshape(*x.shape[:-1], *rows.shape[1:])

        x = self.dataset.samples().x[:: max(1, len(self.dataset.samples()) // 500)]
        values = evaluate(x)
        names = self.dataset.state_names
        retained = fit.retained if fit else (names,) * values.shape[1]
        equations = readable_equations(x, values, names, retained)
        return Constraints(values.shape[1], evaluate, spectrum, equations)

    def update(self, trajectory: Trajectory) -> "Model":
        """Fold in a further trajectory at fixed hyperparameters, without refitting from scratch.

        The noise level of every source but the primary one is learned again. The constraint is
        learned again only if it is sampled at the states of all sources.
        """
        return _with_further(self, self.dataset.append(trajectory))

    def with_constraint(self, gamma: Gamma | None, fit: ConstraintFit | None = None) -> "Model":
        """The same dynamics projected onto another constraint, or none."""
        return replace(
            self, predictor=Predictor(self.predictor.dynamics, gamma), constraint_fit=fit
        )

    def mean_only(self) -> "Model":
        """The same predictions without what standard deviations and updates need: far smaller."""
        dynamics = self.predictor.dynamics
        light = Dynamics(dynamics.reduction, dynamics.gps.mean_only())
        return replace(self, predictor=Predictor(light, self.predictor.gamma))

    def summary(self) -> str:
        """What was discovered, in a few lines."""
        return summarise(
            self.dataset,
            self.pseudometric,
            self.config.pseudometric.threshold,
            self.retained.dynamics,
            self.retained.constraint,
            self.constraints.singular_values,
            self.constraints.equations,
        )


def fit(
    dataset: Dataset,
    preset: Preset = "default",
    *,
    config: Config | None = None,
    sparsify: bool | None = None,
    project: Literal["none", "learned"] | Gamma | None = None,
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
        seed: makes the result reproducible.
        progress: called with a sentence as each stage begins.
    """
    dataset.check_inputs()
    config = config or Config.preset(preset)
    if sparsify is not None:
        config = replace(config, sparsify=sparsify)
    known = project if callable(project) else None
    if isinstance(project, str):
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
    metric_key, dynamics_key, constraint_key = jax.random.split(jax.random.key(seed), 3)

    metric, reduction = None, Reduction.everything(dataset.input_names)
    if config.sparsify:
        progress("pseudometric: which inputs matter")
        own = samples.source == primary
        inputs = np.concatenate([samples.x, samples.u], axis=1)[own]
        metric = fit_pseudometric(
            inputs,
            samples.xdot[own],
            dataset.input_names,
            key=metric_key,
            config=config.pseudometric,
        )
        reduction = retained_inputs(metric, config.pseudometric.threshold)
    progress("dynamics: fitting one GP per state derivative")
    dynamics = fit_dynamics(samples, reduction, key=dynamics_key, config=config.dynamics)
    model = Model(
        Predictor(dynamics, known), config, dataset, dataset.sources[primary], metric, None, seed
    )
    if known is None and config.project == "learned":
        progress("constraint: normal spaces and their GPs")
        model = _learn_constraint(model, constraint_key)
    return model


def _learn_constraint(model: Model, key: Array) -> Model:
    dataset = model.dataset
    found = fit_constraint(
        model.predictor.dynamics,
        dataset.samples(),
        dataset.sources.index(model.primary),
        dataset.state_names,
        key=key,
        config=model.config.constraint,
    )
    return model.with_constraint(found.gamma, found)


def _with_further(model: Model, dataset: Dataset) -> Model:
    samples = dataset.samples()
    dynamics = update_dynamics(
        model.predictor.dynamics,
        samples,
        dataset.sources.index(model.primary),
        config=model.config.dynamics,
    )
    updated = replace(model, predictor=Predictor(dynamics, model.predictor.gamma), dataset=dataset)
    if model.constraint_fit is not None and model.config.constraint.sample_at == "all":
        _, _, constraint_key = jax.random.split(jax.random.key(model.seed), 3)
        return _learn_constraint(updated, constraint_key)
    return updated


def _check_gamma(gamma: Gamma, dataset: Dataset) -> None:
    shape = np.shape(gamma(jnp.asarray(dataset.samples().x[0])))
    if len(shape) != 2 or shape[1] != dataset.n + 1:
        raise ValueError(
            f"A known Γ maps a state of {dataset.n} numbers to a (c, {dataset.n + 1}) matrix "
            f"[G g]; got shape {shape}. Append the column g, zeros if there is no bias."
        )


def _batch(values: Any, size: int, name: str, least: int) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < least or array.shape[-1] != size:
        raise ValueError(
            f"`{name}` needs {'at least 2 dimensions and ' if least > 1 else ''}{size} numbers in "
            f"its last one; got shape {array.shape}. Check the order of the columns."
        )
    if not np.all(np.isfinite(array)):
        bad = int(np.sum(~np.isfinite(array)))
        raise ValueError(f"`{name}` must be finite; {bad} of its values are not. Remove them.")
    return array


def _broadcast(first: tuple[int, ...], second: tuple[int, ...], what: str) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise ValueError(
            f"Leading dimensions of {what} must match or broadcast; got {first} and {second}. "
            f"Give one control (sequence) for each state."
        ) from None


@eqx.filter_jit
def _predict(predictor, x, u, return_std):
    if return_std:
        return jax.vmap(predictor.with_std)(x, u)
    mean = jax.vmap(predictor)(x, u)
    return mean, mean


@eqx.filter_jit
def _rollout(predictor, x0, controls, dt, integrator):
    return jax.vmap(lambda x, u: rollout(predictor, x, u, dt, integrator))(x0, controls)


@eqx.filter_jit
def _gamma(gamma, x):
    return jax.vmap(gamma)(x)
