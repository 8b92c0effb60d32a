"""Model predictive path integral control: sampled plans, weighted by what they cost."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.control.checks import check_controls
from offmap.model import Model
from offmap.rollout import Integrator, step
from offmap.trust import Trust
from offmap.types import VectorField

Cost = Callable[[Float[Array, " n"], Float[Array, " m"], Any], Float[Array, ""]]
"""Cost of one state and control, given what `solve` was told to aim at in that step."""


class Plan(NamedTuple):
    """What a controller carries from one call to the next."""

    controls: Float[Array, "T m"]
    key: Array


@dataclass(frozen=True, eq=False)
class MPPI:
    """A sampling controller: perturbs its plan many times and moves towards what costs least.

    Works on a fitted model or on any vector field x' = f(x, u), so that a learned model and the
    truth can be compared under the same controller. Everything is compiled once; the cost is any
    JAX function of one state, one control and the target of that step.

    Example:
        controller = MPPI(model, cost, low=[-0.2, 0.0], high=[0.2, 1.5])
        plan = controller.start()
        u, plan = controller.solve(x, plan, target)
    """

    f: Model | VectorField
    cost: Cost
    low: Any
    """Least value of each control."""
    high: Any
    """Largest value of each control."""
    dt: float | None = None
    """Length of a step; None takes that of the model's data."""
    horizon: int = 30
    """Steps of a plan."""
    samples: int = 1000
    """Plans compared in one call."""
    spread: float = 0.3
    """Standard deviation of the perturbations, as a share of each control's range."""
    smoothness: float = 0.7
    """Correlation of a perturbation with that of the step before."""
    temperature: float = 0.05
    """Of the weights, as a share of the mean cost above the least: lower is greedier."""
    trust_weight: float = 0.0
    """Cost of a step without any trust; a fitted model only."""
    terminal: Cost | None = None
    """Cost of the last state, instead of `cost`."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_controls(self.f if isinstance(self.f, Model) else None, *self._bounds)
        for name in ("horizon", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is at least 1; got {getattr(self, name)}. Raise it.")
        for name in ("spread", "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` is positive; got {getattr(self, name)}. Raise it.")
        if not 0 <= self.smoothness < 1:
            raise ValueError(f"`smoothness` lies in [0, 1); got {self.smoothness}. Try 0.7.")
        if self.trust_weight and not isinstance(self.f, Model):
            raise ValueError(
                f"Only a fitted model knows where it can be trusted; got a function with "
                f"trust_weight={self.trust_weight}. Set it to 0."
            )
        if self.dt is None and not isinstance(self.f, Model):
            raise ValueError("A function x' = f(x, u) has no time step; got dt=None. Give seconds.")
        if self.dt is not None and not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"A step dt must be positive and finite; got {self.dt}. Give seconds.")

    def start(self) -> Plan:
        """A plan that rests at zero, or in the middle of the bounds that exclude it."""
        low, high = self._bounds
        rest = np.where((low <= 0) & (high >= 0), 0.0, (low + high) / 2)
        return Plan(jnp.tile(jnp.asarray(rest), (self.horizon, 1)), jax.random.key(self.seed))

    def solve(self, x: Any, plan: Plan, target: Any = None) -> tuple[np.ndarray, Plan]:
        """The control to apply now, and the plan for the next call.

        `target` is handed to the cost: an array, or a tree of them, with one row for each of the
        `horizon` steps.
        """
        target = jax.tree.map(jnp.asarray, target)
        for leaf in jax.tree.leaves(target):
            if leaf.ndim == 0 or leaf.shape[0] != self.horizon:
                raise ValueError(
                    f"A target needs one row for each of the {self.horizon} steps; got shape "
                    f"{leaf.shape}. Repeat a target that stays."
                )
        model = self.f if isinstance(self.f, Model) else None
        f = self.f if model is None else model.means
        trust = model.trust_score if model is not None and self.trust_weight else None
        control, plan = self._compiled(f, trust, jnp.asarray(x, float), plan, target)
        return np.asarray(control), plan

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.atleast_1d(np.asarray(b, float)) for b in (self.low, self.high))
        return low, high

    @cached_property
    def _compiled(self) -> Callable[..., tuple[Array, Plan]]:
        return eqx.filter_jit(self._improved)

    def _improved(
        self,
        f: VectorField,
        trust: Trust | None,
        x: Float[Array, " n"],
        plan: Plan,
        target: Any,
    ) -> tuple[Float[Array, " m"], Plan]:
        """The mean of perturbed plans, those that cost little weighing most."""
        key, following = jax.random.split(plan.key)
        plans = self._perturbed(plan.controls, key)
        costs = self._costs(f, trust, x, plans, target)
        finite = jnp.isfinite(costs)  # a plan that diverges has no say
        least = jnp.min(jnp.where(finite, costs, jnp.inf))
        above = jnp.where(finite, costs - least, 0.0)
        typical = jnp.sum(above) / jnp.maximum(jnp.sum(finite), 1)
        weights = jnp.where(finite, jnp.exp(-above / (self.temperature * typical + 1e-300)), 0.0)
        # If all plans diverge there is nothing to choose by, and the plan stays as it was.
        weights = jnp.where(jnp.any(finite), weights, jnp.zeros_like(weights).at[0].set(1.0))
        best = jnp.tensordot(weights / jnp.sum(weights), plans, axes=1)
        return best[0], Plan(jnp.concatenate([best[1:], best[-1:]]), following)

    def _perturbed(self, controls: Array, key: Array) -> Float[Array, "samples T m"]:
        """The plan itself, then the plan with smooth random perturbations, all within bounds."""
        low, high = (jnp.asarray(b) for b in self._bounds)
        white = jax.random.normal(key, (self.horizon, self.samples, len(low)))

        def smooth(before, now):
            after = self.smoothness * before + jnp.sqrt(1 - self.smoothness**2) * now
            return after, after

        _, noise = jax.lax.scan(smooth, white[0], white)
        noise = jnp.moveaxis(noise, 0, 1) * (self.spread * (high - low))[None, None]
        noise = noise.at[0].set(0.0)
        return jnp.clip(controls[None] + noise, low[None, None], high[None, None])

    def _costs(
        self, f: VectorField, trust: Trust | None, x: Array, plans: Array, target: Any
    ) -> Float[Array, " samples"]:
        """Cost of every plan: all plans advance together, one step at a time."""
        model = self.f if isinstance(self.f, Model) else None
        dt = model.dataset.dt if model is not None and self.dt is None else self.dt
        integrator: Integrator = "euler" if model is None else model.integrator
        assert dt is not None  # checked when the controller was made

        def advance(carry, now):
            states, total = carry
            controls, goal = now
            total = total + jax.vmap(lambda x, u: self.cost(x, u, goal))(states, controls)
            if trust is not None:
                total = total + self.trust_weight * (1 - jax.vmap(trust)(states, controls))
            states = jax.vmap(lambda x, u: step(f, x, u, dt, integrator))(states, controls)
            return (states, total), None

        states = jnp.broadcast_to(x, (plans.shape[0], x.shape[0]))
        by_step = jnp.moveaxis(plans, 1, 0)
        start = (states, jnp.zeros(plans.shape[0]))
        (states, total), _ = jax.lax.scan(advance, start, (by_step, target))
        last = self.terminal or self.cost
        final = jax.tree.map(lambda leaf: leaf[-1], target)
        return total + jax.vmap(lambda x, u: last(x, u, final))(states, by_step[-1])
