"""Gaussian processes in CasADi's terms: means, and variances of the function."""

import math
from typing import Any

import jax
import numpy as np

from offmap.gp import AbstractGPs, AbstractKernel, IndependentGPs, InducedGPs, Strays
from offmap.gp.kernels import RBF, ControlAffine, Cosine, Linear, Product, Sum
from offmap.gp.straight import straight_terms, straight_variances
from offmap.pseudometric import Reduction
from offmap.regressor import AbstractRegressor

_LARGEST = 500_000  # numbers in a mean; C code grows with them
_LARGEST_FACTOR = 2_000_000  # numbers behind a standard deviation


def exportable(regressor: AbstractRegressor, what: str) -> AbstractGPs:
    """The regressor, if it is one that can be exported."""
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


def reduced(casadi: Any, reduction: Reduction, z: Any) -> Any:
    """`Reduction.__call__`."""
    features = reduction.features
    if features is not None:
        parts = []
        for i in range(len(features.raw_names)):
            angle = i in features.angles
            parts += [casadi.sin(z[i]), casadi.cos(z[i])] if angle else [z[i]]
        z = casadi.vertcat(*parts)
    return constant(casadi, reduction.matrix) @ z


def mean(casadi: Any, gps: AbstractGPs, x: Any) -> Any:
    """`AbstractGPs.__call__`."""
    scaling, points = gps.scaling, np.asarray(gps.x)
    z = (x - constant(casadi, scaling.x_mean)) / constant(casadi, scaling.x_scale)
    outputs = []
    for j, alpha in enumerate(np.asarray(gps.alpha)):
        kernel = jax.tree.map(lambda leaf, j=j: np.asarray(leaf)[j], gps.kernel)
        outputs.append(_weighted_sum(casadi, kernel, z, points, alpha))
    return casadi.vertcat(*outputs) * constant(casadi, scaling.y_scale) + constant(
        casadi, scaling.y_mean
    )


def _weighted_sum(
    casadi: Any, kernel: AbstractKernel, z: Any, points: np.ndarray, alpha: np.ndarray
) -> Any:
    """Σᵢ alphaᵢ k(z, pointsᵢ); straight lines are summed over the points once and for all."""
    if isinstance(kernel, Sum):
        first = _weighted_sum(casadi, kernel.first, z, points, alpha)
        return first + _weighted_sum(casadi, kernel.second, z, points, alpha)
    if isinstance(kernel, Linear):
        slope = np.exp(2 * kernel.log_slope) * (alpha @ points)
        return casadi.dot(constant(casadi, slope), z) + np.exp(2 * kernel.log_bias) * alpha.sum()
    if isinstance(kernel, ControlAffine):
        return _affine_sum(casadi, kernel, z, points, alpha)
    return casadi.dot(constant(casadi, alpha), _covariance(casadi, kernel, z, points))


def _affine_sum(
    casadi: Any, kernel: ControlAffine, z: Any, points: np.ndarray, alpha: np.ndarray
) -> Any:
    controls, others = _split(kernel, points.shape[1])
    v = np.concatenate([np.ones((len(points), 1)), points[:, controls]], axis=1)
    smooth, _, flat = np.exp(kernel.log_weights)
    weighted = alpha[:, None] * v
    parts = constant(casadi, flat * weighted.sum(axis=0))
    if others:
        state = casadi.vertcat(*(z[i] for i in others))
        slopes = (weighted.T @ points[:, others]) * np.asarray(kernel.slopes())
        bumps = casadi.exp(_exponent(casadi, kernel.log_lengthscale, state, points[:, others]))
        parts = (
            parts
            + constant(casadi, slopes) @ state
            + constant(casadi, (smooth * weighted).T) @ bumps
        )
    else:  # a bump over no input is a constant
        parts = parts + constant(casadi, (smooth * weighted).sum(axis=0))
    return casadi.dot(parts, casadi.vertcat(1, *(z[i] for i in controls)))


def variance(casadi: Any, gps: AbstractGPs, x: Any) -> Any:
    """`AbstractGPs.variance`: a few products where functions are straight, else all samples."""
    scaling, points = gps.scaling, np.asarray(gps.x)
    z = (x - constant(casadi, scaling.x_mean)) / constant(casadi, scaling.x_scale)
    outputs = []
    for j in range(len(gps.alpha)):
        kernel = jax.tree.map(lambda leaf, j=j: np.asarray(leaf)[j], gps.kernel)
        known, unsure = _knowledge(gps, j)
        features = straight_terms(kernel, points)
        if features is None:
            _check_factor(gps)
            column = _covariance(casadi, kernel, z, points)
            left = _prior_variance(casadi, kernel, z) - casadi.sumsqr(
                constant(casadi, known) @ column
            )
            if unsure is not None:
                left = casadi.fmax(left, 0) + casadi.sumsqr(constant(casadi, unsure) @ column)
        else:
            weights = np.asarray(straight_variances(kernel))
            terms = _terms(casadi, kernel, z)
            # Of the weights of the terms, given the data: the quadratic form is then never < 0.
            told = known @ (features * weights)
            covariance = np.diag(weights) - told.T @ told
            if unsure is not None:
                left_over = unsure @ (features * weights)
                covariance = covariance + left_over.T @ left_over
            values, vectors = np.linalg.eigh(covariance)
            root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
            left = casadi.sumsqr(constant(casadi, root) @ terms)
        outputs.append(casadi.fmax(left, 0))
    return casadi.vertcat(*outputs) * constant(casadi, scaling.y_scale) ** 2


def stray_variance(casadi: Any, strays: Strays, x: Any) -> Any:
    """`Strays.variance`."""
    scaling = strays.scaling
    z = (x - constant(casadi, scaling.x_mean)) / constant(casadi, scaling.x_scale)
    terms = [math.prod((z[i] ** 2 for i in own), start=casadi.MX(1)) for own in strays.products]
    return constant(casadi, strays.deviation) ** 2 @ casadi.vertcat(*terms)


def _knowledge(gps: AbstractGPs, j: int) -> tuple[np.ndarray, np.ndarray | None]:
    """A and B of the variance k(z, z) − ‖A k‖² + ‖B k‖², with k the covariances at z."""
    if isinstance(gps, InducedGPs):
        corner, now, _ = gps.known()
        inverse = np.linalg.inv(np.asarray(corner[j]))
        return inverse, np.linalg.solve(np.asarray(now.root[j]).T, inverse)
    assert isinstance(gps, IndependentGPs)
    gps._check_factor()
    upper = np.asarray(gps.base[j])
    cross, extension = np.asarray(gps.cross[j]), np.asarray(gps.extension[j])
    none = np.zeros((len(upper), len(extension)))
    return np.linalg.inv(np.block([[upper.T, none], [cross.T, extension]])), None


def _check_factor(gps: AbstractGPs) -> None:
    numbers = gps.x.shape[0] ** 2 * len(gps.alpha) * (2 if isinstance(gps, InducedGPs) else 1)
    if numbers > _LARGEST_FACTOR:
        raise ValueError(
            f"Standard deviations must need at most {_LARGEST_FACTOR:,} numbers to be exported; "
            f"got {numbers:,} for {gps.points():,} samples. Export the mean alone, or fit to fewer "
            f"samples."
        )


def _terms(casadi: Any, kernel: AbstractKernel, z: Any) -> Any:
    """The terms of `straight_terms` at z."""
    if isinstance(kernel, Linear):
        return casadi.vertcat(1, z)
    controls, others = _split(kernel, z.shape[0])
    w = casadi.vertcat(1, *(z[i] for i in others))
    return casadi.vertcat(w, *(z[i] * w for i in controls))


def _split(kernel: AbstractKernel, d: int) -> tuple[list[int], list[int]]:
    assert isinstance(kernel, ControlAffine)
    return list(kernel.controls), list(kernel.others(d))


def _prior_variance(casadi: Any, kernel: AbstractKernel, z: Any) -> Any:
    """k(z, z)."""
    if isinstance(kernel, RBF | Cosine):
        return float(np.exp(kernel.log_variance))
    if isinstance(kernel, Linear):
        slopes = constant(casadi, np.exp(2 * np.asarray(kernel.log_slope)))
        return casadi.dot(slopes, z**2) + float(np.exp(2 * kernel.log_bias))
    if isinstance(kernel, ControlAffine):
        controls, others = _split(kernel, z.shape[0])
        smooth, _, flat = np.exp(np.asarray(kernel.log_weights))
        parts = constant(casadi, smooth + flat)
        for slope, i in zip(np.asarray(kernel.slopes()).T, others, strict=True):
            parts = parts + constant(casadi, slope) * z[i] ** 2
        return casadi.dot(parts, casadi.vertcat(1, *(z[i] ** 2 for i in controls)))
    assert isinstance(kernel, Sum | Product)
    first, second = (_prior_variance(casadi, k, z) for k in (kernel.first, kernel.second))
    return first + second if isinstance(kernel, Sum) else first * second


def _covariance(casadi: Any, kernel: AbstractKernel, z: Any, points: np.ndarray) -> Any:
    """The column k(z, points)."""
    if isinstance(kernel, RBF):
        exponent = _exponent(casadi, kernel.log_lengthscale, z, points)
        return casadi.exp(float(kernel.log_variance) + exponent)
    if isinstance(kernel, Cosine):
        rate, product = 2 * np.pi * np.exp(-np.asarray(kernel.log_period)), 1
        for i in range(points.shape[1]):
            product *= casadi.cos(rate[i] * (z[i] - constant(casadi, points[:, i])))
        return float(np.exp(kernel.log_variance)) * product
    if isinstance(kernel, Linear):
        slope = points * np.exp(2 * np.asarray(kernel.log_slope))
        return constant(casadi, slope) @ z + float(np.exp(2 * kernel.log_bias))
    if isinstance(kernel, (Sum, Product)):
        first = _covariance(casadi, kernel.first, z, points)
        second = _covariance(casadi, kernel.second, z, points)
        return first + second if isinstance(kernel, Sum) else first * second
    if isinstance(kernel, ControlAffine):
        controls, others = _split(kernel, points.shape[1])
        v = np.concatenate([np.ones((len(points), 1)), points[:, controls]], axis=1)
        smooth, _, flat = np.exp(np.asarray(kernel.log_weights))
        state = casadi.vertcat(*(z[i] for i in others))
        control = casadi.vertcat(1, *(z[i] for i in controls))
        exponent = _exponent(casadi, kernel.log_lengthscale, state, points[:, others])
        column = (constant(casadi, smooth * v) @ control) * casadi.exp(exponent)
        for j, slopes in enumerate(np.asarray(kernel.slopes())):
            lines = constant(casadi, v[:, j : j + 1] * points[:, others] * slopes) @ state
            column = column + lines * control[j]
        return column + constant(casadi, flat * v) @ control
    raise ValueError(
        f"A kernel must be known to be exported to CasADi; got {type(kernel).__name__}. Use rbf, "
        f"linear, cosine, rbf+linear, affine, bilinear or quadratic."
    )


def _exponent(casadi: Any, log_lengthscale: Any, z: Any, points: np.ndarray) -> Any:
    """−½ Σ ((z − point)/ℓ)² for every point."""
    squared = 0
    for i, rate in enumerate(np.exp(-np.asarray(log_lengthscale))):
        squared += (rate * (z[i] - constant(casadi, points[:, i]))) ** 2
    return -0.5 * squared


def constant(casadi: Any, array: Any) -> Any:
    """Numbers as CasADi takes them."""
    return casadi.DM(np.asarray(array, dtype=np.float64))
