"""The fitted model: a vector field, what was discovered, and how to fold in more data."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.batches import batch, broadcast, check_size, flat
from offmap.calls import Unpacked, at_each
from offmap.config import Config, stage_keys
from offmap.constraint import ConstraintFit, Equation, fit_constraint, readable_equations
from offmap.data import Dataset, Trajectory, complete_history
from offmap.differentiation import like
from offmap.dynamics import Dynamics, compact_dynamics, complete_dynamics, update_dynamics
from offmap.export import to_casadi
from offmap.gp import Strays
from offmap.gp.draws import DrawnGPs, FunctionDraws, PriorDraw
from offmap.predictor import Predictor
from offmap.pseudometric import Pseudometric
from offmap.rollout import Integrator, rollout
from offmap.sampling import Doubt, DrawnFields, MemberDraws, draw_fields, find_doubt
from offmap.storage import read, register, write
from offmap.summary import Choices, Retained, summarise
from offmap.threads import one_blas_thread
from offmap.trust import Leverage, Trust, fit_trust
from offmap.types import Gamma


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
    world: Dynamics
    """The dynamics before any constraint; the predictor's own unless that is in a frame, and then
    perhaps conditioned on some of the samples only, until it is asked for."""
    config: Config
    dataset: Dataset
    primary: str
    """The source with the most samples, which sets the hyperparameters."""
    pseudometric: Pseudometric | None
    constraint_fit: ConstraintFit | None
    choices: Choices
    seed: int

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """X' at one state and control; works under jax.jit, vmap and grad."""
        return self.means(x, u)

    @property
    def integrator(self) -> Integrator:
        """Of rollouts."""
        return "euler" if self.config.integrator == "auto" else self.config.integrator

    @cached_property
    def means(self) -> Predictor:
        """The predictor at its least cost, for loops: exact, but without standard deviations."""
        own = self.predictor
        if own.softness is not None:  # a soft projection needs the variance for its mean
            return own
        with jax.ensure_compile_time_eval():  # also where it is first asked for under jit
            return Predictor(compact_dynamics(own.dynamics), own.gamma)

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

        With `return_std=True` also the standard deviation of the latent x' after projection; see
        `doubt`.
        """
        x, u = batch(x, self.dataset.n, "x", 1), batch(u, self.dataset.m, "u", 1)
        shape = broadcast(x.shape[:-1], u.shape[:-1], "x and u")
        x, u = flat(x, shape, 1), flat(u, shape, 1)
        shape = (*shape, self.dataset.n)
        mean = np.asarray(self._unpacked.call(_over, x, u)).reshape(shape)
        if not return_std:
            return mean
        return mean, np.asarray(at_each(self.doubt.std, x, u)).reshape(shape)

    @cached_property
    def _unpacked(self) -> Unpacked:
        return Unpacked(self.means)

    def rollout(
        self,
        x0: Any,
        controls: Any,
        dt: float | None = None,
        *,
        before: Any = None,
        samples: int | None = None,
        seed: int = 0,
    ) -> np.ndarray:
        """States (…, T + 1, n) from starts (…, n) under controls (…, T, m), each held for dt.

        With `samples` S, states (S, …, T + 1, n): S vector fields are drawn from the posterior, and
        each is followed through all steps, starts and controls. Their spread is how far the model
        may be off by then: an error of f̂ is the same at every step, and does not average out. Each
        goes through the projection or the tangent frame as the mean does, and `predict`'s standard
        deviation is theirs in one step. Starts and controls count as known, and so does a Γ that
        is not made of short equations. Members of a neural ensemble are its draws, taken in turn.

        A model of past commands takes the k `before` the first, oldest first (…, k, m); without
        them the first command is taken to have held.
        """
        dt = self.dataset.dt if dt is None else dt
        if not (np.isfinite(dt) and dt > 0):
            raise ValueError(f"A step dt must be positive and finite; got {dt}. Give seconds.")
        x0 = batch(x0, self.dataset.n, "x0", 1)
        controls = np.asarray(controls, dtype=np.float64)
        if controls.ndim > 1:
            past = None if before is None else np.asarray(before, dtype=np.float64)
            controls = complete_history(controls, self.dataset.control_names, past)
        controls = batch(controls, self.dataset.m, "controls", 2)
        shape = broadcast(x0.shape[:-1], controls.shape[:-2], "x0 and controls")
        starts, plans = flat(x0, shape, 1), flat(controls, shape, 2)
        result = (*shape, controls.shape[-2] + 1, self.dataset.n)
        integrator = self.integrator
        if samples is None:
            states = self._unpacked.call(
                _rollout, starts, plans, np.float64(dt), integrator=integrator
            )
            return np.asarray(states).reshape(result)
        drawn = self.draw(samples, seed)
        states = _sampled_rollout(drawn, starts, plans, dt, integrator, samples)
        return np.asarray(states).reshape(samples, *result)

    def draw(self, samples: int, seed: int = 0) -> DrawnFields:
        """Vector fields drawn from the posterior; `model.draw(S)[i]` is x' = fᵢ(x, u)."""
        return draw_fields(self.doubt, samples, key=jax.random.key(seed))

    @cached_property
    def doubt(self) -> Doubt:
        """How far the model may be off, from its samples, when first asked for.

        The function may be off by what a prior with room for lines says (see `offmap.gp.doubt`),
        the weights of Γ by their standard errors.
        """
        primary = self.dataset.sources.index(self.primary)
        return find_doubt(self.predictor, self.dataset.samples(), primary)

    def trust(self, x: Any, u: Any) -> Float[Array, "..."]:
        """Trust in [0, 1] at states (…, n) and controls (…, m): ½ where errors are twice as large.

        Falls with the distance to the data in the learned pseudometric, so that inputs the dynamics
        ignore cost nothing. Works under jax.jit and jax.grad, so that a controller's cost may use
        it; see `offmap.trust`.
        """
        x, u = jnp.asarray(x), jnp.asarray(u)
        check_size(x, self.dataset.n, "x", 1)
        check_size(u, self.dataset.m, "u", 1)
        shape = broadcast(x.shape[:-1], u.shape[:-1], "x and u")
        flat_x = jnp.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1])
        flat_u = jnp.broadcast_to(u, (*shape, u.shape[-1])).reshape(-1, u.shape[-1])
        return at_each(self.trust_score, flat_x, flat_u).reshape(shape)

    @cached_property
    def trust_score(self) -> Trust:
        """The distance behind `trust`, calibrated at held-out samples when first asked for."""
        primary = self.dataset.sources.index(self.primary)
        with jax.ensure_compile_time_eval():  # also where a cost asks for it while being compiled
            samples, doubt = self.dataset.samples(), self.doubt.of_straight_functions()
            return fit_trust(self.predictor, self.pseudometric, samples, primary, doubt)

    @property
    def retained(self) -> Retained:
        """Which inputs the dynamics and each constraint row depend on."""
        rows = self.constraint_fit.retained if self.constraint_fit else ()
        own = self.predictor.dynamics
        tangent = None if own.frame is None else own.reduction.names
        return Retained(self.world.reduction.names, rows, tangent)

    @cached_property
    def constraints(self) -> Constraints:
        """The constraints in force: how many, Γ, the spectrum, and readable equations."""
        gamma, fit = self.predictor.gamma, self.constraint_fit
        spectrum = fit.normal_space.singular_values if fit else np.zeros(0)
        if gamma is None:
            n = self.dataset.n
            return Constraints(
                0, lambda x: np.zeros((*batch(x, n, "x", 1).shape[:-1], 0, n + 1)), spectrum, ()
            )

        def evaluate(x: Any) -> np.ndarray:
            x = batch(x, self.dataset.n, "x", 1)
            rows = at_each(gamma, x.reshape(-1, x.shape[-1]))
            return np.asarray(rows).reshape(*x.shape[:-1], *rows.shape[1:])

        x = self.dataset.samples().x[:: max(1, len(self.dataset.samples()) // 500)]
        values = evaluate(x)
        names = self.dataset.state_names
        retained = fit.retained if fit else (names,) * values.shape[1]
        equations = fit.equations if fit else None
        if equations is None:
            equations = readable_equations(x, values, names, retained)
        return Constraints(values.shape[1], evaluate, spectrum, equations)

    @one_blas_thread
    def update(self, trajectory: Trajectory) -> "Model":
        """Fold in a further trajectory at fixed hyperparameters, without refitting from scratch.

        The noise level of every source but the primary one is learned again. The constraint is
        learned again only if it is sampled at the states of all sources.
        """
        stacked = self.dataset.stacked(trajectory)
        told = like(stacked, self.config, self.dataset.angle_indices, self.predictor)
        dataset = self.dataset.append(told)
        primary = dataset.sources.index(self.primary)

        def updated(dynamics: Dynamics) -> Dynamics:
            return update_dynamics(
                dynamics, dataset.samples(), primary, config=self.config.dynamics
            )

        own = self.predictor.dynamics
        dynamics = updated(own)
        world = dynamics if own is self.world else self.world
        predictor = eqx.tree_at(lambda p: p.dynamics, self.predictor, dynamics)
        model = replace(self, predictor=predictor, world=world, dataset=dataset)
        relearn = self.constraint_fit is not None and self.config.constraint.sample_at == "all"
        if not relearn:
            return model
        found = fit_constraint(
            model.world,
            dataset.samples(),
            primary,
            dataset.state_names,
            key=stage_keys(self.seed).constraint,
            config=self.config.constraint,
        )
        return model.with_constraint(found.gamma, found)

    def with_constraint(
        self,
        gamma: Gamma | None,
        fit: ConstraintFit | None = None,
        softness: Float[Array, " c"] | None = None,
    ) -> "Model":
        """The dynamics before any constraint, projected onto another one, or none."""
        world = complete_dynamics(
            self.world,
            self.dataset.samples(),
            self.dataset.sources.index(self.primary),
            config=self.config.dynamics,
        )
        predictor = Predictor(world, gamma, softness)
        return replace(self, predictor=predictor, world=world, constraint_fit=fit)

    def mean_only(self) -> "Model":
        """The same predictions without what standard deviations and updates need: far smaller."""

        def light(dynamics: Dynamics) -> Dynamics:
            return Dynamics(dynamics.reduction, dynamics.regressor.mean_only(), dynamics.frame)

        predictor = self.predictor
        if predictor.softness is None:  # a soft projection needs the variance for its mean
            predictor = Predictor(light(predictor.dynamics), predictor.gamma)
        return replace(self, predictor=predictor, world=light(self.world))

    def to_casadi(
        self,
        name: str = "offmap",
        gamma: Callable[[Any], Any] | None = None,
        *,
        return_std: bool = False,
    ) -> Any:
        """The model as a self-contained casadi.Function (x, u) ↦ x', for Opti, do-mpc or C code.

        Holds the mean and the projection or tangent frame, and needs neither offmap nor JAX. With
        `return_std=True` a second output is the standard deviation that `predict` gives. A Γ
        that the model was given as a Python function has to be given here as well, as a function of
        a CasADi vector. Needs the extra `casadi`.
        """
        own = self.predictor
        if own.softness is not None and own.dynamics.frame is None:
            raise ValueError(
                "Only a constraint that holds exactly can be exported to CasADi; this model is "
                "drawn towards its constraint. Use with_constraint(gamma) to hold it to Γ."
            )
        n, m = self.dataset.n, self.dataset.m
        doubt = self.doubt if return_std else None
        return to_casadi(own, n, m, doubt=doubt, name=name, given=gamma)

    def summary(self) -> str:
        """What was discovered, in a few lines."""
        return summarise(
            self.dataset,
            self.pseudometric,
            replace(self.config, integrator=self.integrator),
            self.retained,
            self.constraints.singular_values,
            self.constraints.equations,
            self.choices,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with its data to one file, from which `offmap.load` reads it back."""
        write(path, self)


register(Predictor, Model, Trust, Leverage)
register(Doubt, DrawnFields, MemberDraws, FunctionDraws, DrawnGPs, PriorDraw, Strays)


def load(path: str | os.PathLike[str]) -> Model:
    """The model saved in a file; it predicts, rolls out and updates exactly as the saved one."""
    model = read(path)
    if not isinstance(model, Model):
        raise ValueError(
            f"{path} holds a {type(model).__name__} instead of a model. Give a file written by "
            f"`model.save`."
        )
    return model


def _over(f, x, u):
    return jax.vmap(f)(x, u)


def _rollout(predictor, x0, controls, dt, integrator):
    return jax.vmap(lambda x, u: rollout(predictor, x, u, dt, integrator))(x0, controls)


@eqx.filter_jit
def _sampled_rollout(drawn, x0, controls, dt, integrator, samples):
    def one(i):
        f = drawn[i]
        return jax.vmap(lambda x, u: rollout(f, x, u, dt, integrator))(x0, controls)

    return jax.vmap(one)(jnp.arange(samples))
