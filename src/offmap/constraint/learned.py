"""The learned constraint Γ̂(x): one pseudometric per row, one GP per entry (IV-B-3, IV-B-4)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from offmap.calls import at_each
from offmap.constraint.basis import align_signs, rref, unit_rows
from offmap.constraint.dictionary import Standard, discover, equation_of, inputs_of
from offmap.constraint.equations import Equation
from offmap.constraint.library import DictionaryConstraint, Library
from offmap.constraint.normal_space import (
    NormalSpace,
    derivative_stack,
    normal_space,
    spread_actions,
)
from offmap.constraint.second_order import discover_products
from offmap.constraint.weights import DictionaryRow
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

_NOISE_FLOORS = (0.0, 0.01, 0.03)
"""Least noise that is tried, one after the other, relative to the size of x'. Where errors are
alike in neighbouring samples they pass for dynamics, and the noise found is too low: no 0 there."""
_EFFECT = 0.5
"""Share of a residual that controls must explain to be said to matter, where errors are alike in
neighbouring samples: they go with controls that are smooth in time, whatever the F-test says."""

_MATTERS = 0.1
"""On recordings, a law that controls bend by less than this share of the motions in it is one yet:
whether to predict by it is decided on held-out data."""
_PROBES = 200  # samples at which slopes are asked for
_SLOPE = 1e-3  # mean square of a slope, as a share of the largest, that is one


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
        _spread(samples.xdot),
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


def fit_dictionary(
    f: VectorField,
    space: NormalSpace,
    samples: Samples,
    primary: int,
    noise: Float[np.ndarray, " n"],
    library: Library,
    *,
    key: PRNGKeyArray,
    config: ConstraintConfig,
    correlated: bool = False,
) -> ConstraintFit:
    """Search measured motions for short equations between terms of a library.

    Where these leave more open than the controls can move, products of two terms are tried too.

    Args:
        f: the dynamics, asked which states each velocity depends on.
        space: the normal space, kept for its spectrum.
        samples: measured data.
        primary: code of the source whose samples are searched.
        noise: standard deviation of the noise in each component of x', in units of its spread, as
            the dynamics found it. Real errors of derivatives are smooth in time and partly pass
            for dynamics, so if nothing obeys this noise, larger noise is tried.
        library: functions of the state to build equations from.
        key: randomness of the choice of samples.
        config: settings.
        correlated: whether errors of neighbouring samples are alike, as in recordings.
    """
    own = np.flatnonzero(samples.source == primary)
    own = own[np.asarray(jax.random.permutation(key, len(own)))[: config.search_samples]]
    features = np.asarray(at_each(library, samples.x[own]))
    spread, size = _spread(samples.xdot[own]), np.sqrt(np.mean(samples.xdot[own] ** 2, axis=0))
    found, rows = library, list[DictionaryRow]()
    least = noise * spread
    groups = samples.trajectory[own] if correlated else None
    for floor in _NOISE_FLOORS[1:] if correlated else _NOISE_FLOORS:
        level = np.maximum(least, floor * size)
        if floor > 0 and not correlated and np.any(level <= least):
            break  # of some velocity, the noise that was found is larger anyway
        standard = Standard(
            effect=_EFFECT if correlated or floor > 0 else 0.0,
            matters=_MATTERS if correlated else 0.0,
        )
        measured = (features, samples.xdot[own], samples.u[own], level)
        short = discover(library, *measured, groups=groups, standard=standard)
        found, rows = library, short.rows
        if samples.x.shape[1] - len(rows) > samples.u.shape[1]:
            depends = _depends(f, samples.take(own))
            found, rows = discover_products(
                library, *measured, short, depends, groups=groups, standard=standard
            )
        if rows:
            break
    if not rows:
        return ConstraintFit(None, space, space.basis, [], (), ())
    weights = jnp.asarray(np.stack([row.weights for row in rows]))
    return ConstraintFit(
        DictionaryConstraint(found, weights),
        space,
        space.basis,
        [],
        tuple(inputs_of(row, found) for row in rows),
        tuple(equation_of(row, found) for row in rows),
    )


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


def _depends(f: VectorField, samples: Samples) -> Bool[np.ndarray, "n n"]:
    """Which states each component of f depends on, by its slopes in units of the sizes."""
    some = samples.take(np.arange(len(samples))[:: max(1, len(samples) // _PROBES)])
    slopes = np.asarray(_slopes(f, jnp.asarray(some.x), jnp.asarray(some.u)))
    change = np.mean(slopes**2, axis=0) * np.mean(samples.x**2, axis=0)
    return change > _SLOPE * change.max(axis=1, keepdims=True)


@eqx.filter_jit
def _slopes(f, x, u):
    return jax.vmap(jax.jacfwd(f))(x, u)


def _spread(xdot: np.ndarray) -> np.ndarray:
    spread = xdot.std(axis=0)
    return np.where(spread > 0, spread, 1.0)
