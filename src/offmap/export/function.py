"""A predictor, and how far it may be off, as one CasADi function."""

from collections.abc import Callable
from typing import Any

import numpy as np

from offmap.axes import TurnedAxes
from offmap.constraint import DictionaryConstraint
from offmap.export.constraint import (
    equations,
    exported_axes,
    exported_frame,
    exported_gamma,
    orthonormal_rows,
)
from offmap.export.gps import constant, exportable, mean, reduced, stray_variance, variance
from offmap.predictor import Predictor
from offmap.sampling import Doubt
from offmap.tangent import TangentFrame


def to_casadi(
    predictor: Predictor,
    n: int,
    m: int,
    *,
    doubt: Doubt | None = None,
    name: str = "offmap",
    given: Callable[[Any], Any] | None = None,
) -> Any:
    """The casadi.Function (x, u) ↦ x' of dynamics firmly projected onto Γ, if there is one.

    With `doubt` also ↦ the standard deviation of x'. `given` is Γ as a function of a CasADi vector,
    where the predictor's is a Python function.
    """
    casadi = _casadi()
    dynamics = predictor.dynamics
    x, u = casadi.MX.sym("x", n), casadi.MX.sym("u", m)
    z = reduced(casadi, dynamics.reduction, casadi.vertcat(x, u))
    values = mean(casadi, exportable(dynamics.regressor, "The dynamics"), z)
    gamma = dynamics.frame.gamma if isinstance(dynamics.frame, TangentFrame) else predictor.gamma
    rows = None if gamma is None else exported_gamma(casadi, gamma, n, given)
    xdot, keep = _velocity(casadi, predictor, rows, x, values)
    if doubt is None:
        return casadi.Function(name, [x, u], [xdot], ["x", "u"], ["xdot"])
    function = exportable(doubt.function, "The doubt about the dynamics")
    spread = variance(casadi, function, z)
    if doubt.strayed is not None:
        spread = spread + stray_variance(casadi, doubt.strayed, z)
    total = keep**2 @ spread
    if doubt.weights is not None and isinstance(gamma, DictionaryConstraint):
        moved = _moved(casadi, predictor, gamma, np.asarray(doubt.weights), x, values)
        total = total + sum(one**2 for one in moved)
        for one, along in zip(moved, doubt.along, strict=bool(doubt.along)):
            shared = mean(casadi, exportable(along, "The doubt about the dynamics"), z)
            total = total + 2 * one * (keep @ shared)
    if doubt.missed is not None and rows is not None:
        total = total + _normal_steps(casadi, rows(x)) ** 2 @ constant(casadi, doubt.missed) ** 2
    # A root has no slope at 0, where nothing is in doubt.
    std = casadi.if_else(total > 0, casadi.sqrt(casadi.if_else(total > 0, total, 1)), 0)
    return casadi.Function(name, [x, u], [xdot, std], ["x", "u"], ["xdot", "std"])


def _velocity(
    casadi: Any, predictor: Predictor, gamma: Callable[[Any], Any] | None, x: Any, values: Any
) -> tuple[Any, Any]:
    """`Predictor.__call__` from the regressor's values, and its slope by them."""
    frame = predictor.dynamics.frame
    if isinstance(frame, TurnedAxes):
        basis = exported_axes(casadi, frame, x)
        return basis @ values, basis
    if gamma is None:
        return values, casadi.DM.eye(x.shape[0])
    if frame is not None:
        basis, drift = exported_frame(casadi, frame, gamma, x)
        return drift + basis @ values, basis
    normal = orthonormal_rows(casadi, gamma(x))
    G, g = normal[:, :-1], normal[:, -1]
    return values - G.T @ (G @ values + g), casadi.DM.eye(x.shape[0]) - G.T @ G


def _moved(
    casadi: Any,
    predictor: Predictor,
    gamma: DictionaryConstraint,
    directions: np.ndarray,
    x: Any,
    values: Any,
) -> list[Any]:
    """By how much x' moves along each direction of the weights of Γ, as `Doubt.std` has it."""
    own = np.asarray(gamma.weights)
    weights = [casadi.MX.sym(f"W{i}", *row.shape) for i, row in enumerate(own)]
    xs, vs = casadi.MX.sym("x", x.shape[0]), casadi.MX.sym("v", values.shape[0])
    velocity, _ = _velocity(
        casadi, predictor, lambda state: equations(casadi, gamma, weights, state), xs, vs
    )
    along = [casadi.MX.sym(f"D{i}", *row.shape) for i, row in enumerate(own)]
    slope = sum(casadi.jtimes(velocity, w, d) for w, d in zip(weights, along, strict=True))
    moved = casadi.Function("moved", [xs, vs, *weights, *along], [slope])
    here = [constant(casadi, row) for row in own]
    each = ([constant(casadi, row) for row in direction] for direction in directions)
    return [moved(x, values, *here, *direction) for direction in each]


def _normal_steps(casadi: Any, gamma: Any) -> Any:
    """`projection.normal_steps` of independent rows."""
    G = gamma[:, :-1]
    unit = casadi.vertcat(*(G[i, :] / casadi.norm_2(G[i, :]) for i in range(G.shape[0])))
    return casadi.solve(unit @ unit.T, unit).T


def _casadi() -> Any:
    try:
        import casadi
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`to_casadi` needs CasADi, which is not installed. Install offmap with its extra "
            "`casadi`."
        ) from error
    return casadi
