"""Which representation of Γ extrapolates best, from the middle of the states to their edge."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.constraint.learned import ConstraintFit
from offmap.constraint.normal_space import NormalSpace
from offmap.constraint.projector import projectors
from offmap.gp.selection import edge_points
from offmap.gp.verdict import level_with_best, root_mean

_FLOOR = 1e-4  # errors below this count as equal

Fit = Callable[[NormalSpace], ConstraintFit]
"""Learns Γ from normal spaces."""


def choose_representation(
    space: NormalSpace, units: Float[np.ndarray, " q"], fits: Mapping[str, Fit]
) -> tuple[ConstraintFit, str, dict[str, float]]:
    """The fit whose Γ is nearest to the normal spaces at the edge, its name, and all errors.

    An error is the sine of the angle between predicted and true normal space, root mean square
    over the c angles and the states. Representations come in the order of preference where the
    edge cannot tell them apart.
    """
    if len(fits) == 1 or space.c == 0:
        name = next(iter(fits))
        return fits[name](space), name, {}
    edge = edge_points(space.x)
    middle = NormalSpace(space.x[~edge], space.basis[~edge], space.singular_values)
    outside = NormalSpace(space.x[edge], space.basis[edge], space.singular_values)
    true, errors = projectors(outside, units), {}
    for name, fit in fits.items():
        gamma = fit(middle).gamma
        assert gamma is not None  # of a space of c > 0
        rows = np.asarray(at_each(gamma, outside.x))
        learned = projectors(NormalSpace(outside.x, rows, space.singular_values), units)
        errors[name] = np.sum((learned - true) ** 2, axis=(1, 2)) / (2 * space.c)
    winner = level_with_best(errors, _FLOOR)[0]
    return fits[winner](space), winner, root_mean(errors)
