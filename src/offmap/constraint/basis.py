"""From a null space to rows that vary smoothly with x: rref, unit rows, signs (paper IV-B-2)."""

from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.spatial.distance import cdist

_PIVOT = 1e-6  # a pivot below this fraction of the matrix's largest entry counts as zero


def rref(matrices: Float[np.ndarray, "N c q"]) -> Float[np.ndarray, "N c q"]:
    """Reduced row echelon form of each matrix, with partial pivoting, all matrices at once."""
    A = np.array(matrices, dtype=float)
    N, rows, columns = A.shape
    if N == 0 or rows == 0:
        return A
    every = np.arange(N)
    tolerance = _PIVOT * np.abs(A).max(axis=(1, 2))
    done = np.zeros(N, dtype=int)  # rows that already have their pivot
    below = np.arange(rows)[None, :]
    for column in range(columns):
        candidates = np.where(below >= done[:, None], np.abs(A[:, :, column]), -1.0)
        pivot = candidates.argmax(axis=1)
        active = (done < rows) & (candidates[every, pivot] > tolerance)
        row = np.minimum(done, rows - 1)
        i, p, r = every[active], pivot[active], row[active]
        A[i, p], A[i, r] = A[i, r], A[i, p]
        A[i, r] /= A[i, r, column][:, None]
        factors = A[i, :, column].copy()
        factors[np.arange(len(i)), r] = 0.0
        A[i] -= factors[:, :, None] * A[i, r][:, None, :]
        done[active] += 1
    return A


def unit_rows(gamma: Float[np.ndarray, "N c q"]) -> Float[np.ndarray, "N c q"]:
    """Scale each row so that its part G has length 1.

    The rref row of the unicycle, [1, −cot θ, 0, 0], is unbounded at θ = 0; the unit row
    [−sin θ, cos θ, 0, 0] is not. The length is that of G alone: a row such as ṗx − vx = 0 then
    stays linear in vx.
    """
    return gamma / np.linalg.norm(gamma[:, :, :-1], axis=2, keepdims=True)


def align_signs(
    x: Float[np.ndarray, "N n"],
    gamma: Float[np.ndarray, "N c q"],
    compare: Literal["direction", "row"] = "direction",
) -> Float[np.ndarray, "N c q"]:
    """Flip rows so that each agrees with its nearest aligned neighbour (eq. approx_gamma).

    The paper compares with the nearest data point. Which of the two is flipped is settled along
    the minimum spanning tree of the states, starting from the first one. Rows are compared by
    their direction G: the bias g, in other units, may change sign where the direction does not.
    `compare="row"` takes the product of whole rows, as printed.
    """
    if len(x) < 2 or gamma.shape[1] == 0:
        return gamma
    spread = x.std(axis=0)
    scaled = x / np.where(spread > 0, spread, 1.0)
    distance = cdist(scaled, scaled)
    # SciPy reads up to 1e-8 as "no edge"; coincident points are joined by a very short one.
    tree = minimum_spanning_tree(np.maximum(distance, 1e-6))
    _, parent = breadth_first_order(tree, 0, directed=False)
    parent = np.where(parent < 0, 0, parent)
    compared = gamma[..., :-1] if compare == "direction" else gamma
    agreement = np.einsum("ncq,ncq->nc", compared, compared[parent])
    sign = np.where(agreement < 0, -1.0, 1.0)
    sign[0] = 1.0
    # Multiply the signs of all edges up to the root by doubling the reach of `parent`.
    for _ in range(int(np.ceil(np.log2(len(x)))) + 1):
        sign = sign * np.where((parent == 0)[:, None], 1.0, sign[parent])
        parent = parent[parent]
    return gamma * sign[:, :, None]
