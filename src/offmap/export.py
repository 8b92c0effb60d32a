"""Dynamics as a CasADi function: self-contained, differentiable, and C code if wanted."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from offmap.constraint import DictionaryConstraint, LearnedConstraint, ProjectorConstraint
from offmap.dynamics import Dynamics
from offmap.gp import AbstractGPs, AbstractKernel
from offmap.gp.kernels import RBF, ControlAffine, Cosine, Linear, Product, Sum
from offmap.pseudometric import Reduction
from offmap.regressor import AbstractRegressor
from offmap.tangent import POLISH, TangentFrame
from offmap.types import Gamma

_LARGEST = 500_000  # numbers in a function; C code grows with them
_REPEATED = 1e-12  # squared share of a row that must be new for the row to count


def to_casadi(
    dynamics: Dynamics,
    gamma: Gamma | None,
    n: int,
    m: int,
    *,
    name: str = "offmap",
    given: Callable[[Any], Any] | None = None,
) -> Any:
    """The casadi.Function (x, u) ↦ x' of dynamics firmly projected onto Γ, if there is one.

    `given` is Γ as a function of a CasADi vector, where `gamma` is a Python function.
    """
    casadi = _casadi()
    x, u = casadi.MX.sym("x", n), casadi.MX.sym("u", m)
    gps = _exportable(dynamics.regressor, "The dynamics")
    outputs = _mean(casadi, gps, _reduced(casadi, dynamics.reduction, casadi.vertcat(x, u)))
    if dynamics.frame is not None:
        rows = _gamma(casadi, dynamics.frame.gamma, n, given)
        basis, drift = _frame(casadi, dynamics.frame, rows, x)
        outputs = drift + basis @ outputs
    elif gamma is not None:
        normal = _orthonormal_rows(casadi, _gamma(casadi, gamma, n, given)(x))
        G, g = normal[:, :-1], normal[:, -1]
        outputs = outputs - G.T @ (G @ outputs + g)
    return casadi.Function(name, [x, u], [outputs], ["x", "u"], ["xdot"])


def _casadi() -> Any:
    try:
        import casadi
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`to_casadi` needs CasADi, which is not installed. Install offmap with its extra "
            "`casadi`."
        ) from error
    return casadi


def _exportable(regressor: AbstractRegressor, what: str) -> AbstractGPs:
    if not isinstance(regressor, AbstractGPs):
        raise ValueError(
            f"{what} must be Gaussian processes to be exported to CasADi; got "
            f"{type(regressor).__name__}. Fit with a GPConfig."
        )
    size = regressor.x.size + regressor.alpha.size
    if size > _LARGEST:
        raise ValueError(
            f"{what} must need at most {_LARGEST:,} numbers to be exported; got {size:,} for "
            f"{regressor.points():,} samples. Fit to fewer samples."
        )
    return regressor


def _reduced(casadi: Any, reduction: Reduction, z: Any) -> Any:
    features = reduction.features
    if features is not None:
        parts = []
        for i in range(len(features.raw_names)):
            angle = i in features.angles
            parts += [casadi.sin(z[i]), casadi.cos(z[i])] if angle else [z[i]]
        z = casadi.vertcat(*parts)
    return _dm(casadi, reduction.matrix) @ z


def _mean(casadi: Any, gps: AbstractGPs, x: Any) -> Any:
    """`AbstractGPs.__call__`."""
    scaling, points = gps.scaling, np.asarray(gps.x)
    z = (x - _dm(casadi, scaling.x_mean)) / _dm(casadi, scaling.x_scale)
    outputs = []
    for j, alpha in enumerate(np.asarray(gps.alpha)):
        kernel = jax.tree.map(lambda leaf, j=j: np.asarray(leaf)[j], gps.kernel)
        outputs.append(_weighted_sum(casadi, kernel, z, points, alpha))
    return casadi.vertcat(*outputs) * _dm(casadi, scaling.y_scale) + _dm(casadi, scaling.y_mean)


def _weighted_sum(
    casadi: Any, kernel: AbstractKernel, z: Any, points: np.ndarray, alpha: np.ndarray
) -> Any:
    """Σᵢ alphaᵢ k(z, pointsᵢ); straight lines are summed over the points once and for all."""
    if isinstance(kernel, Sum):
        first = _weighted_sum(casadi, kernel.first, z, points, alpha)
        return first + _weighted_sum(casadi, kernel.second, z, points, alpha)
    if isinstance(kernel, Linear):
        slope = np.exp(2 * kernel.log_slope) * (alpha @ points)
        return casadi.dot(_dm(casadi, slope), z) + np.exp(2 * kernel.log_bias) * alpha.sum()
    if isinstance(kernel, ControlAffine):
        return _affine_sum(casadi, kernel, z, points, alpha)
    return casadi.dot(_dm(casadi, alpha), _covariance(casadi, kernel, z, points))


def _affine_sum(
    casadi: Any, kernel: ControlAffine, z: Any, points: np.ndarray, alpha: np.ndarray
) -> Any:
    controls = list(kernel.controls)
    others = [i for i in range(points.shape[1]) if i not in controls]
    v = np.concatenate([np.ones((len(points), 1)), points[:, controls]], axis=1)
    smooth, straight, constant = np.exp(kernel.log_weights)
    weighted = alpha[:, None] * v
    parts = _dm(casadi, constant * weighted.sum(axis=0))
    if others:
        state = casadi.vertcat(*(z[i] for i in others))
        slopes = (straight * weighted).T @ (points[:, others] * np.exp(2 * kernel.log_slope))
        bumps = casadi.exp(_exponent(casadi, kernel.log_lengthscale, state, points[:, others]))
        parts = parts + _dm(casadi, slopes) @ state + _dm(casadi, (smooth * weighted).T) @ bumps
    else:  # a bump over no input is a constant
        parts = parts + _dm(casadi, (smooth * weighted).sum(axis=0))
    return casadi.dot(parts, casadi.vertcat(1, *(z[i] for i in controls)))


def _covariance(casadi: Any, kernel: AbstractKernel, z: Any, points: np.ndarray) -> Any:
    """The column k(z, points)."""
    if isinstance(kernel, RBF):
        exponent = _exponent(casadi, kernel.log_lengthscale, z, points)
        return casadi.exp(float(kernel.log_variance) + exponent)
    if isinstance(kernel, Cosine):
        rate, product = 2 * np.pi * np.exp(-np.asarray(kernel.log_period)), 1
        for i in range(points.shape[1]):
            product *= casadi.cos(rate[i] * (z[i] - _dm(casadi, points[:, i])))
        return float(np.exp(kernel.log_variance)) * product
    if isinstance(kernel, Linear):
        slope = points * np.exp(2 * np.asarray(kernel.log_slope))
        return _dm(casadi, slope) @ z + float(np.exp(2 * kernel.log_bias))
    if isinstance(kernel, (Sum, Product)):
        first = _covariance(casadi, kernel.first, z, points)
        second = _covariance(casadi, kernel.second, z, points)
        return first + second if isinstance(kernel, Sum) else first * second
    raise ValueError(
        f"A kernel must be known to be exported to CasADi; got {type(kernel).__name__}. Use rbf, "
        f"linear, cosine, rbf+linear or affine."
    )


def _exponent(casadi: Any, log_lengthscale: Any, z: Any, points: np.ndarray) -> Any:
    """−½ Σ ((z − point)/ℓ)² for every point."""
    squared = 0
    for i, rate in enumerate(np.exp(-np.asarray(log_lengthscale))):
        squared += (rate * (z[i] - _dm(casadi, points[:, i]))) ** 2
    return -0.5 * squared


def _gamma(
    casadi: Any, gamma: Gamma, n: int, given: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    """Γ as a function of a CasADi state; one function, however often it is called."""
    x = casadi.MX.sym("x", n)
    if given is not None:
        rows = given(x)
    elif isinstance(gamma, DictionaryConstraint):
        trig = [x[i] for i in gamma.library.trigonometric]
        plain = [x[i] for i in gamma.library.plain]
        phi = casadi.vertcat(
            1, *plain, *(casadi.sin(a) for a in trig), *(casadi.cos(a) for a in trig)
        )
        weights = np.asarray(gamma.weights)
        rows = casadi.vertcat(*((_dm(casadi, row.T) @ phi).T for row in weights))
    elif isinstance(gamma, LearnedConstraint):
        means = []
        for row in gamma.rows:
            gps = _exportable(row.gps, "A row of Γ")
            means.append(_mean(casadi, gps, _reduced(casadi, row.reduction, x)).T)
        rows = casadi.vertcat(*means)
    elif isinstance(gamma, ProjectorConstraint):
        raise ValueError(
            "A constraint held as a projector cannot be exported to CasADi, which has no branches "
            "for reading rows off it. Fit with Config(representations=('dictionary', 'rows'))."
        )
    else:
        raise ValueError(
            f"A constraint given as a Python function cannot be exported; got "
            f"{getattr(gamma, '__name__', type(gamma).__name__)}. Pass the same Γ as a function of "
            f"a CasADi vector: to_casadi(gamma=…)."
        )
    return casadi.Function("gamma", [x], [rows])


def _orthonormal_rows(casadi: Any, gamma: Any) -> Any:
    """The same constraint with orthonormal G (Gram–Schmidt); rows that repeat others become 0."""
    rows: list[Any] = []
    for i in range(gamma.shape[0]):
        row = gamma[i, :]
        row = row / casadi.sqrt(casadi.fmax(casadi.sumsqr(row[:-1]), 1e-300))
        for _ in range(2):  # once more, for what round-off left
            for other in rows:
                row = row - casadi.dot(row[:-1], other[:-1]) * other
        left = casadi.sumsqr(row[:-1])
        new = left > _REPEATED
        # The root of what is dropped is never asked for: its slope has no end at 0.
        rows.append(row * casadi.if_else(new, 1 / casadi.sqrt(casadi.if_else(new, left, 1)), 0))
    return casadi.vertcat(*rows)


def _frame(
    casadi: Any, frame: TangentFrame, gamma: Callable[[Any], Any], x: Any
) -> tuple[Any, Any]:
    """`TangentFrame.__call__`."""
    origin = _dm(casadi, frame.origin)
    away = x - origin
    turned = casadi.atan2(casadi.sin(away), casadi.cos(away))
    away = casadi.vertcat(
        *(turned[i] if i in frame.periodic else away[i] for i in range(x.shape[0]))
    )
    basis, normal = _start(casadi, frame, away), None
    for share in range(1, frame.steps + 1):
        normal = _orthonormal_rows(casadi, gamma(origin + share / frame.steps * away))
        basis = basis - normal[:, :-1].T @ (normal[:, :-1] @ basis)
        for _ in range(POLISH):
            basis = basis @ (1.5 * casadi.DM.eye(basis.shape[1]) - 0.5 * basis.T @ basis)
    assert normal is not None
    return basis, -normal[:, :-1].T @ normal[:, -1]


def _start(casadi: Any, frame: TangentFrame, away: Any) -> Any:
    """The basis that the march begins with."""
    basis, turning = _dm(casadi, frame.basis), frame.turning
    if turning is None:
        return basis
    sine, cosine = casadi.sin(away[turning.angle]), casadi.cos(away[turning.angle])
    rows = casadi.vertsplit(casadi.MX(basis) if isinstance(away, casadi.MX) else basis)
    a, b = rows[turning.first], rows[turning.second]
    rows[turning.first], rows[turning.second] = cosine * a - sine * b, sine * a + cosine * b
    return casadi.vertcat(*rows)


def _dm(casadi: Any, array: Any) -> Any:
    return casadi.DM(np.asarray(array, dtype=np.float64))
