"""How far a constraint may be off, from the motions it was fitted to: its weights and its form."""

import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.constraint.library import DictionaryConstraint, products
from offmap.data import Samples
from offmap.gp.misfit import beyond_chance
from offmap.types import Gamma

_POINTS = 3000  # of larger data sets
_EQUAL = 1e-12  # relative difference of weights that are meant to be equal
_ROUND_OFF = 1e-9  # of the speed: smaller misfits are none


def weight_doubt(
    gamma: DictionaryConstraint, x: Float[np.ndarray, "N n"], xdot: Float[np.ndarray, "N n"]
) -> tuple[Float[np.ndarray, "e c k q"], Float[np.ndarray, "e N"]]:
    """Directions D of the weights' error: W + Σ εₑ Dₑ with ε ~ N(0, I) is as likely as W.

    In each row the largest weight is fixed, and the covariance of the others is that of least
    squares with residuals whose size differs from sample to sample (White's sandwich). Weights of
    one size are one weight: they were found to be equal, and are wrong together or not at all.
    Also gives what each sample has to do with it: if the errors of all samples are multiplied by
    independent ζ ~ N(0, 1), then ε = V ζ.
    """
    phi = np.asarray(at_each(gamma.library, x))
    right = np.concatenate([xdot, np.ones((len(x), 1))], axis=1)
    moves, units = [np.zeros((0, len(x)))], [np.zeros((0, *np.shape(gamma.weights)))]
    for i, row in enumerate(np.asarray(gamma.weights)):
        _, *free = _of_one_size(row)
        if not free:
            continue
        residual = np.einsum("nk,nq,kq->n", phi, right, row, optimize=True)
        terms = np.stack([np.einsum("nk,nq,kq->n", phi, right, one) for one in free], axis=1)
        moves.append(np.linalg.pinv(terms) * residual[None])
        unit = np.zeros((len(free), *np.shape(gamma.weights)))
        unit[:, i] = np.stack(free)
        units.append(unit)
    left, size, shares = np.linalg.svd(np.concatenate(moves), full_matrices=False)
    directions = np.einsum("fe,fckq->eckq", left * size[None], np.concatenate(units))
    return directions, shares


def _of_one_size(row: Float[np.ndarray, "k q"]) -> list[Float[np.ndarray, "k q"]]:
    """The signs of all weights of each size, largest first."""
    size = np.abs(row)
    sizes: list[float] = []
    for value in np.sort(size[size > 0])[::-1]:
        if not sizes or value < (1 - _EQUAL) * sizes[-1]:
            sizes.append(float(value))
    return [
        np.where(np.abs(size - value) <= 1.5 * _EQUAL * value, np.sign(row), 0) for value in sizes
    ]


def misfit(gamma: Gamma, samples: Samples) -> Float[np.ndarray, " c"]:
    """By how much motions break each row (of unit G) in a way that state and control explain.

    Noise leaves a residual that nothing explains. What products of G, functions of x and
    (1, u, u uᵀ) explain of it, beyond chance, is not noise: the equation is wrong by as much.
    """
    own = samples.take(np.arange(len(samples))[:: max(1, len(samples) // _POINTS)])
    rows = np.asarray(at_each(gamma, own.x))
    of_state = _standardised(own.x)
    if isinstance(gamma, DictionaryConstraint):
        of_state = np.asarray(at_each(gamma.library, own.x))
    v = _standardised(own.u)
    pairs = [v[:, i] * v[:, j] for i in range(1, v.shape[1]) for j in range(i, v.shape[1])]
    known = products(of_state, np.concatenate([v, np.stack(pairs, axis=1)], axis=1))
    least = _ROUND_OFF * np.sqrt(np.mean(own.xdot**2))
    return np.array([_explained(row, own.xdot, known, least) for row in np.moveaxis(rows, 1, 0)])


def _explained(
    row: Float[np.ndarray, "N q"],
    xdot: Float[np.ndarray, "N n"],
    known: Float[np.ndarray, "N k"],
    least: float,
) -> float:
    """Root mean square of what `known`, times G, explains of a row's residual beyond chance."""
    G = row[:, :-1]
    residual = np.sum(G * xdot, axis=1) + row[:, -1]
    columns = products(G[:, np.any(G != 0, axis=0)], known)
    beyond = np.sqrt(beyond_chance(residual, columns) / np.sum(G**2))
    return float(beyond) if beyond > least else 0.0


def _standardised(values: np.ndarray) -> np.ndarray:
    """(1, values in units of their spread)."""
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.concatenate([np.ones((len(values), 1)), scaled], axis=1)
