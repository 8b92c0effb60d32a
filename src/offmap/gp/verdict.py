"""Which candidates held-out data cannot tell from the best: the one rule behind every choice."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

LEVEL = 1.02
"""Errors within this ratio count as equal."""
UNSURE = 1.25
"""And so do those within this one, if chance explains the difference."""
OF_DRIVES = 2.0
"""The same where whole drives are held out: there are few, and one of them may decide a ratio."""
_CHANCE = 2.0  # standard errors that chance explains, if there are many groups


def root_mean(errors: Mapping[str, Float[np.ndarray, " G"]]) -> dict[str, float]:
    """Root mean square error of each candidate."""
    return {name: float(np.sqrt(np.mean(squared))) for name, squared in errors.items()}


def level_with_best(
    errors: Mapping[str, Float[np.ndarray, " G"]],
    floor: float,
    *,
    level: float = LEVEL,
    chance: float = _CHANCE,
    unsure: float = UNSURE,
) -> tuple[str, ...]:
    """The candidates whose held-out errors are not clearly above the least, in their order.

    `errors` holds mean squared errors over G groups of held-out data, the same groups for all
    candidates, such as trajectories. A candidate is level with the best if its root mean square
    error is within 2 % (`level`), if both are below `floor`, or if it is within 25 % (`unsure`) and
    the paired difference is at most two (`chance`) standard errors over the groups; more where
    there are few groups, as Student's t has it.
    """
    scores = {name: max(score, floor) for name, score in root_mean(errors).items()}
    best = min(scores, key=lambda name: scores[name])

    def is_level(name: str) -> bool:
        ratio = scores[name] / scores[best]
        behind = errors[name] - errors[best]
        if ratio <= level or ratio > unsure or len(behind) < 2:
            return ratio <= level
        explained = stdtrit(len(behind) - 1, ndtr(chance)) if chance > 0 else 0.0
        return bool(behind.mean() <= explained * behind.std(ddof=1) / np.sqrt(len(behind)))

    return tuple(name for name in errors if is_level(name))
