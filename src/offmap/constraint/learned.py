"""The learned constraint Γ̂(x): one pseudometric per row, one GP per entry (IV-B-3, IV-B-4)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.constraint.basis import align_signs, rref, unit_rows
from offmap.constraint.equations import Equation
from offmap.constraint.library import DictionaryConstraint
from offmap.constraint.normal_space import (
    NormalSpace,
    derivative_stack,
    normal_space,
    spread,
    spread_actions,
)
from offmap.data import Samples
from offmap.gp import AbstractGPs, GPConfig, KernelName, choose_kernel, fit_gps
from offmap.pseudometric import (
    Pseudometric,
    PseudometricConfig,
    Reduction,
    fit_pseudometrics,
    retained_inputs,
)
from offmap.types import Gamma, VectorField


@dataclass(frozen=True)
class ConstraintConfig:
    """Settings of the constraint stage."""

    c: int | None = None
    """Number of constraints; None reads it off the spectrum."""
    min_gap: float = 10.0
    """Smallest ratio of neighbouring singular values that counts as a gap."""
    epsilon: float | None = None
    """The paper's rule instead: count the singular values of unscaled stacks below this."""
    actions: int | None = None
    """K, actions tried at each state; None takes 2 (n + 1). K ≥ n − c + 1 is needed."""
    samples: int = 400
    """States at which the normal space is computed."""
    search_samples: int = 1500
    """Samples in which a dictionary of terms is searched for equations."""
    sample_at: Literal["primary", "all"] = "primary"
    """At states of the largest source only, or of all sources, noisy ones included."""
    rows: Literal["unit", "rref"] = "unit"
    signs: Literal["direction", "row"] = "direction"
    """What must agree with the neighbour's: the direction G, or the whole row as printed."""
    sparsify: bool = True
    kernels: tuple[KernelName, ...] = ("linear", "cosine", "rbf")
    """Candidates; each row takes the one that best extrapolates to the edge of its data."""
    gp: GPConfig = field(default_factory=lambda: GPConfig(hyper_points=200, centre=False))
    pseudometric: PseudometricConfig = field(
        # Entries of a unit row share a scale; one that is zero up to the error of f̂ must not be
        # blown up to the size of the others.
        default_factory=lambda: PseudometricConfig(standardize_outputs=False)
    )

    def __post_init__(self) -> None:
        allowed = {
            "sample_at": ("primary", "all"),
            "rows": ("unit", "rref"),
            "signs": ("direction", "row"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(
                    f"`{name}` is one of {values}; got {getattr(self, name)!r}. Choose one of them."
                )


class Row(eqx.Module):
    """One row of Γ̂(x): n + 1 GPs over the inputs this row retains."""

    reduction: Reduction
    gps: AbstractGPs
    kernel: KernelName = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " q"]:
        """Posterior mean of the row at one state."""
        return self.gps(self.reduction(x))


class LearnedConstraint(eqx.Module):
    """Γ̂(x): calling it gives the posterior mean of every entry at one state."""

    rows: tuple[Row, ...]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, "c q"]:
        """[Ĝ(x) ĝ(x)]."""
        return jnp.stack([row(x) for row in self.rows])


@dataclass(frozen=True)
class ConstraintFit:
    """What the constraint stage found; `gamma` is None where there is no constraint."""

    gamma: Gamma | None
    normal_space: NormalSpace
    rows: Float[np.ndarray, "N c q"]
    """The training labels Γ_approx."""
    pseudometrics: list[Pseudometric]
    retained: tuple[tuple[str, ...], ...]
    equations: tuple[Equation, ...] | None = None
    """Where the constraint is an equation to begin with."""

    @property
    def c(self) -> int:
        """Number of constraints found."""
        return len(self.retained)

    def only(self, kept: Sequence[int]) -> "ConstraintFit":
        """The same with some of its equations."""
        assert isinstance(self.gamma, DictionaryConstraint) and self.equations is not None
        return replace(
            self,
            gamma=DictionaryConstraint(self.gamma.library, self.gamma.weights[jnp.array(kept)]),
            retained=tuple(self.retained[i] for i in kept),
            equations=tuple(self.equations[i] for i in kept),
        )


def fit_constraint(
    f: VectorField,
    samples: Samples,
    primary: int,
    names: tuple[str, ...],
    *,
    key: PRNGKeyArray,
    config: ConstraintConfig,
) -> ConstraintFit:
    """Learn Γ̂(x) from derivative stacks of f, which is f̂ ("approx") or the true f ("ideal").

    Args:
        f: the vector field asked for derivatives at many actions per state.
        samples: measured data; their states and controls are where f is asked.
        primary: code of the source the states are taken from, unless `sample_at` is "all".
        names: names of the states.
        key: randomness of the choice of states and of training.
        config: settings.
    """
    space = find_normal_space(f, samples, primary, key=key, config=config)
    return fit_rows(space, names, key=key, config=config)


def find_normal_space(
    f: VectorField, samples: Samples, primary: int, *, key: PRNGKeyArray, config: ConstraintConfig
) -> NormalSpace:
    """The normal space of f at measured states, and how many constraints its spectrum shows."""
    state_key, _, _ = jax.random.split(key, 3)
    x = _choose_states(samples, primary, state_key, config)
    _check_actions(config, x.shape[1])
    actions = spread_actions(samples.u, config.actions or 2 * (x.shape[1] + 1))
    stack = np.asarray(derivative_stack(f, jnp.asarray(x), jnp.asarray(actions)))
    return normal_space(
        x,
        stack,
        spread(samples.xdot),
        c=config.c,
        min_gap=config.min_gap,
        epsilon=config.epsilon,
    )


def fit_rows(
    space: NormalSpace, names: tuple[str, ...], *, key: PRNGKeyArray, config: ConstraintConfig
) -> ConstraintFit:
    """Learn the rows of Γ̂(x) from normal spaces: the paper's representation."""
    _, metric_key, gp_key = jax.random.split(key, 3)
    if space.c == 0:
        return ConstraintFit(None, space, space.basis, [], ())
    x, rows = space.x, rref(space.basis)
    if config.rows == "unit":
        rows = unit_rows(rows)
    rows = align_signs(x, rows, config.signs)
    metrics = fit_pseudometrics(
        x, np.moveaxis(rows, 1, 0), names, key=metric_key, config=config.pseudometric
    )
    learned = tuple(
        _fit_row(x, rows[:, i], metric, key=jax.random.fold_in(gp_key, i), config=config)
        for i, metric in enumerate(metrics)
    )
    retained = tuple(row.reduction.names for row in learned)
    return ConstraintFit(LearnedConstraint(learned), space, rows, metrics, retained)


def _fit_row(
    x: Float[np.ndarray, "N n"],
    labels: Float[np.ndarray, "N q"],
    metric: Pseudometric,
    *,
    key: PRNGKeyArray,
    config: ConstraintConfig,
) -> Row:
    reduction = (
        retained_inputs(metric, config.pseudometric.threshold)
        if config.sparsify
        else Reduction.everything(metric.names)
    )
    z = x @ np.asarray(reduction.matrix).T
    kernel = choose_kernel(z, labels, config.kernels, key=key, config=config.gp).name
    source = np.zeros(len(x), dtype=int)
    gps = fit_gps(z, labels, source, key=key, config=replace(config.gp, kernel=kernel))
    return Row(reduction, gps, kernel)


def _check_actions(config: ConstraintConfig, n: int) -> None:
    least = n + 1 if config.c is None else n - config.c + 1
    if config.actions is not None and config.actions < least:
        warnings.warn(
            f"K actions span the possible motions only if K ≥ n − c + 1 = {least}; got "
            f"{config.actions}, so the null space will be too large. Leave `actions` at None.",
            stacklevel=3,
        )


def _choose_states(
    samples: Samples, primary: int, key: PRNGKeyArray, config: ConstraintConfig
) -> np.ndarray:
    pool = samples.x if config.sample_at == "all" else samples.x[samples.source == primary]
    if len(pool) <= config.samples:
        return pool
    return pool[np.asarray(jax.random.permutation(key, len(pool)))[: config.samples]]
