"""Choose a kernel by how well it extrapolates, not by how well it explains."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from offmap.gp.fit import GPConfig, fit_gps
from offmap.gp.kernels import KernelName

_EDGE = 0.2  # share of the points held out
_LEVEL = 1.05  # errors within this ratio count as equal
_FLOOR = 1e-6  # and so do all errors below this share of the outputs' spread


def edge_points(x: Float[np.ndarray, "N d"], groups: np.ndarray | None = None) -> np.ndarray:
    """Mask of the outermost fifth of the points: the largest standardised coordinate decides.

    With `groups`, the outermost fifth of whole groups: neighbours in time share their errors, and
    a held-out sample whose neighbours are not held out is no test.
    """
    spread = x.std(axis=0)
    reach = np.max(np.abs(x - np.median(x, axis=0)) / np.where(spread > 0, spread, 1.0), axis=1)
    if groups is not None and len(np.unique(groups)) > 1:
        codes = np.unique(groups)
        far = np.argsort([np.median(reach[groups == code]) for code in codes])
        return np.isin(groups, codes[far[-max(1, round(_EDGE * len(codes))) :]])
    edge = np.zeros(len(x), dtype=bool)
    edge[np.argsort(reach)[-max(1, int(_EDGE * len(x))) :]] = True
    return edge


def choose_kernel(
    x: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, "N p"],
    candidates: Sequence[KernelName],
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    controls: tuple[int, ...] = (),
    groups: np.ndarray | None = None,
) -> tuple[KernelName, dict[KernelName, float]]:
    """The candidate that best predicts the edge of the data from its middle, and their scores.

    The score is the root mean square error at the held-out edge, over all outputs, each measured
    in units of its spread. The likelihood would be a worse judge: it prefers kernels that explain
    the middle and then go astray. Candidates come simplest first: where the edge cannot tell two
    apart, the simpler wins, and once one leaves nothing to improve, the rest are not tried.
    """
    if len(candidates) == 1:
        return candidates[0], {candidates[0]: 0.0}
    edge = edge_points(x, groups)
    source = np.zeros(int(np.sum(~edge)), dtype=int)
    # Outputs of a row of Γ share a scale: one that is zero up to round-off must not decide.
    size = np.sqrt(np.mean(y**2, axis=0))
    spread = np.maximum(y.std(axis=0), 1e-3 * size.max()) if config.centre else size.max()
    scores: dict[KernelName, float] = {}
    for name in candidates:
        gps = fit_gps(
            x[~edge],
            y[~edge],
            source,
            key=key,
            config=replace(config, kernel=name),
            controls=controls,
        )
        error = (np.asarray(_mean_at(gps, jnp.asarray(x[edge]))) - y[edge]) / spread
        scores[name] = float(np.sqrt(np.mean(error**2)))
        if scores[name] <= _FLOOR:
            break
    least = max(min(scores.values()), _FLOOR)
    return next(name for name, score in scores.items() if score <= _LEVEL * least), scores


def edge_errors(
    candidates: Sequence[Float[np.ndarray, "N _"]],
    y: Float[np.ndarray, "N p"],
    x: Float[np.ndarray, "N d"],
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    groups: np.ndarray | None = None,
) -> list[float]:
    """Error at the edge of x of GPs that see each of the candidate inputs instead of x."""
    edge = edge_points(x, groups)
    spread = np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    errors = []
    for seen in candidates:
        source = np.zeros(int(np.sum(~edge)), dtype=int)
        gps = fit_gps(seen[~edge], y[~edge], source, key=key, config=config)
        error = (np.asarray(_mean_at(gps, jnp.asarray(seen[edge]))) - y[edge]) / spread
        errors.append(float(np.sqrt(np.mean(error**2))))
    return errors


@eqx.filter_jit
def _mean_at(gps, x):
    return jax.vmap(gps)(x)
