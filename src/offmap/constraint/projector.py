"""Γ̂(x) by way of the projector onto the normal space: no rows to pair, no sign, no chart.

Rows of Γ(x) are a choice among many, and any choice breaks somewhere: a pivot vanishes, a sign
flips, a chart ends after a quarter turn. N(x) = Γᵀ (Γ Γᵀ)⁻¹ Γ is the same for all of them, and is
smooth where the constraint is. Its entries are learned as functions; the rows of the prediction are
read off it at the end.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.calls import at_each
from offmap.constraint.learned import ConstraintConfig, ConstraintFit
from offmap.constraint.normal_space import NormalSpace
from offmap.features import Features
from offmap.gp import AbstractGPs, KernelName, choose_kernel, fit_gps
from offmap.pseudometric import Reduction
from offmap.sparsity import find_sparsity

_KERNELS: tuple[KernelName, ...] = ("linear", "rbf+linear", "rbf")
_SLOPE = 1e-3  # mean squared slope along an input above which an entry depends on it
_VARIES = 1e-3  # spread of an entry, relative to the largest, below which it counts as constant
_REACH = 0.7  # distance of eigenvalues from ½ at which the iteration still converges fast
_TINY = 1e-30
_PURIFY = 3  # each iteration squares how far eigenvalues are from 0 and 1


class ProjectorConstraint(eqx.Module):
    """Γ̂(x) whose rows span the range of a learned projector N̂(x)."""

    reduction: Reduction
    gps: AbstractGPs
    """The upper triangle of N̂."""
    units: Float[Array, " q"]
    """Spread of each entry of [x'; 1], in which N is orthogonal."""
    c: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, "c q"]:
        """[Ĝ(x) ĝ(x)]: the columns of N̂ that hold most of it, one after the other."""
        rest = self.projector(x)
        rows = []
        for _ in range(self.c):
            axis = jnp.argmax(jnp.diag(rest))
            row = rest[axis] / jnp.sqrt(jnp.maximum(rest[axis, axis], 1e-12))
            rest = rest - jnp.outer(row, row)
            rows.append(row)
        return jnp.stack(rows) / self.units[None]

    def projector(self, x: Float[Array, " n"]) -> Float[Array, "q q"]:
        """N̂(x), drawn to the nearest projector (McWeeny's iteration)."""
        size = self.units.shape[0]
        upper = jnp.zeros((size, size)).at[jnp.triu_indices(size)].set(self.gps(self.reduction(x)))
        N = _within_reach(upper + upper.T - jnp.diag(jnp.diag(upper)))
        for _ in range(_PURIFY):
            N = 3 * N @ N - 2 * N @ N @ N
        return N


def _within_reach(N: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """N with eigenvalues so near ½ that the iteration cannot diverge; as it is where they are.

    Far from the data the entries may be anything, and McWeeny's iteration diverges from eigenvalues
    below −0.37 or above 1.37. Shrinking N − ½ I changes neither eigenvectors nor which are above ½,
    though eigenvalues of very different size then come out between 0 and 1.
    """
    off = N - 0.5 * jnp.eye(len(N))
    size = jnp.maximum(jnp.max(jnp.sum(jnp.abs(off), axis=1)), _TINY)  # no eigenvalue is larger
    power = off / size
    for _ in range(3):
        power = power @ power
    largest = size * (jnp.sum(power**2) + _TINY) ** (
        1 / 16
    )  # at most len(N)^(1/16) times too large
    return 0.5 * jnp.eye(len(N)) + off * jnp.minimum(1.0, _REACH / largest)


def projectors(space: NormalSpace, units: Float[np.ndarray, " q"]) -> Float[np.ndarray, "N q q"]:
    """N at every state of a normal space."""
    basis, _ = np.linalg.qr(np.swapaxes(space.basis * units, 1, 2))
    return basis @ np.swapaxes(basis, 1, 2)


def fit_projector(
    space: NormalSpace,
    names: tuple[str, ...],
    angles: tuple[int, ...],
    units: Float[np.ndarray, " q"],
    *,
    key: PRNGKeyArray,
    config: ConstraintConfig,
) -> ConstraintFit:
    """Learn N(x) from normal spaces; angles are seen by their sines and cosines."""
    if space.c == 0:
        return ConstraintFit(None, space, space.basis, [], ())
    metric_key, gp_key = jax.random.split(key)
    size = space.basis.shape[2]
    rows, columns = np.triu_indices(size)
    entries = projectors(space, units)[:, rows, columns]
    features = Features(names, angles) if angles else None
    spread = entries.std(axis=0)
    # N is the same after half a turn, which pairs of like outputs mistake for standing still: the
    # slopes of a GP have a say. Entries that hardly vary have none.
    found = find_sparsity(
        space.x,
        entries[:, spread > _VARIES * spread.max()],
        names,
        features,
        states=len(names),
        key=metric_key,
        config=config.pseudometric,
        check=_SLOPE,
    )
    reduction = found.reduction
    z = np.asarray(at_each(reduction, space.x))
    kernel = choose_kernel(z, entries, _KERNELS, key=gp_key, config=config.gp).name
    source = np.zeros(len(z), dtype=int)
    gps = fit_gps(z, entries, source, key=gp_key, config=replace(config.gp, kernel=kernel))
    gamma = ProjectorConstraint(reduction, gps, jnp.asarray(units), space.c)
    metrics = [] if found.metric is None else [found.metric] * space.c
    return ConstraintFit(gamma, space, space.basis, metrics, (reduction.names,) * space.c)
