"""Positive pairs: points whose outputs are closest although their inputs are apart."""

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist

_BLOCK = 1024  # rows of the distance matrix held at once


def positive_pairs(
    inputs: Float[np.ndarray, "N d"], outputs: Float[np.ndarray, "N p"], epsilon: float
) -> Int[np.ndarray, " N"]:
    """Index of each point's positive partner (paper IV-A-2).

    The partner of i is the j ≠ i with the closest output among those whose input lies at least
    `epsilon` away. With `epsilon = 0` the paper's argmin would be i itself, so i is left out.

    Raises:
        ValueError: if some point has no partner at least `epsilon` away.
    """
    partner = np.empty(len(inputs), dtype=np.int64)
    for start in range(0, len(inputs), _BLOCK):
        rows = slice(start, start + _BLOCK)
        distance = cdist(outputs[rows], outputs)
        if epsilon > 0:
            distance[cdist(inputs[rows], inputs) < epsilon] = np.inf
        own = np.arange(start, min(start + _BLOCK, len(inputs)))
        distance[own - start, own] = np.inf
        partner[rows] = distance.argmin(axis=1)
        alone = ~np.isfinite(distance.min(axis=1))
        if alone.any():
            raise ValueError(
                f"Every point needs a partner whose input is at least epsilon away; with "
                f"epsilon={epsilon:g} point {own[alone][0]} has none among {len(inputs)}. "
                f"Choose a smaller epsilon or give more data."
            )
    return partner
