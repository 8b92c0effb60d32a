"""How far two constraints are apart."""

import numpy as np
from jaxtyping import Float


def largest_angle(first: Float[np.ndarray, "N c q"], second: Float[np.ndarray, "N c q"]) -> float:
    """Largest principal angle between the row spaces of two Γ over N states, in radians.

    Zero where both forbid the same motions, however their rows are mixed or scaled.
    """
    mine, yours = (np.linalg.qr(np.swapaxes(rows, 1, 2))[0] for rows in (first, second))
    # The sine of the largest angle is accurate where the cosine is not.
    apart = mine - yours @ (np.swapaxes(yours, 1, 2) @ mine)
    return float(np.arcsin(np.clip(np.linalg.norm(apart, 2, axis=(1, 2)), 0, 1)).max())
