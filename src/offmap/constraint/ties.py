"""Weights of a sum that are of one size, or one twice the other: fewer of them to get wrong."""

from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from offmap.constraint.regression import Search, as_good_as, least_ratio

_RATIOS = (1.0, 2.0, 0.5)
_ROUND_OFF = 1e-6  # relative; products of terms keep half of the digits


def tie_width(count: int) -> float:
    """Standard errors within which two weights are taken for one, from `count` samples or drives.

    Schwarz's criterion says √log N for weights that have no other error than that of ẋ. Products
    of noisy states bias them by as much again; and that a state and a rate have one unit is far
    likelier beforehand than that a weight happens to be near 1. Of twenty drives, √log N would take
    a true px' = vx for false one time in twelve.
    """
    return float(np.sqrt(2 * np.log(count)))


def one_size(
    search: Search, support: Int[np.ndarray, " s"], groups: Int[np.ndarray, " N"]
) -> list[Float[np.ndarray, "k q"]]:
    """The sum as few terms, each of which has the weights ±1, ±2, ±½ … fixed between its parts.

    A quaternion's rates are half of products, all of one size; the axes of a body are twice
    products and once squares. Weights are tied if they differ by no more than `tie_width`.
    """
    ratios, weights = least_ratio(search.gram, search.noise, support[None])
    raw = weights[0] / search.size[support]
    basis = np.eye(len(support)) * np.sign(raw)  # of the weights as they are: a column is a term
    count, merged, refused = int(groups.max()) + 1, 0, set[tuple[bytes, bytes, float]]()
    first = max(float(ratios[0]), as_good_as(0.0)) ** 2
    while basis.shape[1] > 1:
        size, covariance = _fitted(search, support, basis, groups)
        options = []
        for a, b in combinations(range(basis.shape[1]), 2):
            for factor in _RATIOS:
                doubt = (
                    covariance[a, a] + factor**2 * covariance[b, b] - 2 * factor * covariance[a, b]
                )
                off = abs(size[a] - factor * size[b])
                most = tie_width(count) * np.sqrt(max(doubt, 0.0))
                most += _ROUND_OFF * max(size[a], size[b])
                key = (basis[:, a].tobytes(), basis[:, b].tobytes(), factor)
                if off <= most and key not in refused:
                    options.append((factor != 1, off / most, a, b, factor, key))
        if not options:
            break
        *_, a, b, factor, key = min(options, key=lambda option: option[:2])
        tied = np.delete(basis, [a, b], axis=1)
        tied = np.concatenate([tied, (factor * basis[:, a] + basis[:, b])[:, None]], axis=1)
        ratio = _ratio(search, support, tied)
        if ratio**2 > first * (1 + (merged + 1) * tie_width(count) ** 2 / count):
            refused.add(key)
            continue
        basis, merged = tied, merged + 1
    return [np.einsum("s,skq->kq", column, search.terms[support]) for column in basis.T]


def _scaled(search: Search, support: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The columns as weights of terms at unit size, of unit length."""
    scaled = basis * search.size[support][:, None]
    return scaled / np.linalg.norm(scaled, axis=0)


def _ratio(search: Search, support: np.ndarray, basis: np.ndarray) -> float:
    columns, here = _scaled(search, support, basis), np.ix_(support, support)
    gram, noise = (columns.T @ matrix[here] @ columns for matrix in (search.gram, search.noise))
    return float(least_ratio(gram, noise, np.arange(columns.shape[1])[None])[0][0])


def _fitted(
    search: Search, support: np.ndarray, basis: np.ndarray, groups: np.ndarray
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, "t t"]]:
    """Size of the weight of each column, the steadiest being 1, and their covariance."""
    columns, here = _scaled(search, support, basis), np.ix_(support, support)
    gram, noise = (columns.T @ matrix[here] @ columns for matrix in (search.gram, search.noise))
    ratio, weights = least_ratio(gram, noise, np.arange(columns.shape[1])[None])
    w = weights[0]
    fixed = int(np.argmax(np.abs(w)))
    free = np.delete(np.arange(len(w)), fixed)
    w = w / w[fixed]
    values = search.values[:, support] @ columns
    residual = values @ w
    scores = np.zeros((groups.max() + 1, len(free)))
    np.add.at(scores, groups, values[:, free] * residual[:, None])
    curvature = len(values) * (gram - ratio[0] ** 2 * noise)[np.ix_(free, free)]
    inverse = np.linalg.pinv(curvature, hermitian=True)
    covariance = np.zeros((len(w), len(w)))
    covariance[np.ix_(free, free)] = inverse @ (scores.T @ scores) @ inverse
    length = np.linalg.norm(basis * search.size[support][:, None], axis=0)
    sign = np.where(w < 0, -1.0, 1.0)
    return np.abs(w) / length, covariance * np.outer(sign / length, sign / length)
