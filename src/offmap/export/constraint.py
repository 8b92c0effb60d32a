"""Constraints and tangent frames in CasADi's terms."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from offmap.axes import TurnedAxes
from offmap.constraint import (
    DictionaryConstraint,
    LearnedConstraint,
    Library,
    ProjectorConstraint,
)
from offmap.export.gps import constant, exportable, mean, reduced
from offmap.pattern import TINY, Pattern, cross_product
from offmap.tangent import POLISH, TangentFrame
from offmap.types import Gamma

_REPEATED = 1e-12  # squared share of a row that must be new for the row to count


def exported_gamma(
    casadi: Any, gamma: Gamma, n: int, given: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    """Γ as a function of a CasADi state; one function, however often it is called."""
    x = casadi.MX.sym("x", n)
    if given is not None:
        rows = given(x)
    elif isinstance(gamma, DictionaryConstraint):
        weights = [constant(casadi, row) for row in np.asarray(gamma.weights)]
        rows = equations(casadi, gamma, weights, x)
    elif isinstance(gamma, LearnedConstraint):
        means = []
        for row in gamma.rows:
            gps = exportable(row.gps, "A row of Γ")
            means.append(mean(casadi, gps, reduced(casadi, row.reduction, x)).T)
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


def equations(casadi: Any, gamma: DictionaryConstraint, weights: list[Any], x: Any) -> Any:
    """`DictionaryConstraint.__call__`; weights, one matrix for each row, may be symbols."""
    phi = _terms(casadi, gamma.library, x)
    return casadi.vertcat(*((row.T @ phi).T for row in weights))


def _terms(casadi: Any, library: Library, x: Any) -> Any:
    """`Library.__call__`."""
    trig = [x[i] for i in library.trigonometric]
    plain = [x[i] for i in library.plain]
    sums = [x[i] + sign * x[j] for i, j, sign in library.sums]
    sines = [f(a) for some in (trig, sums) for f in (casadi.sin, casadi.cos) for a in some]
    single = [1, *plain, *sines]
    products = (prod(single[i] for i in factors) for factors in library.pairs)
    return casadi.vertcat(*single, *products)


def orthonormal_rows(casadi: Any, gamma: Any) -> Any:
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


def exported_frame(
    casadi: Any, frame: TangentFrame, gamma: Callable[[Any], Any], x: Any
) -> tuple[Any, Any]:
    """`TangentFrame.__call__`."""
    basis, drift = _orthonormal_frame(casadi, frame, gamma, x)
    if frame.measured:
        length = casadi.sqrt(casadi.sum1(basis[list(frame.measured), :] ** 2))
        basis = basis / casadi.repmat(length, basis.shape[0], 1)
    if frame.guide is not None:
        k, sums = frame.guide.column, constant(casadi, frame.guide.sums)
        direction = sums @ _terms(casadi, frame.guide.library, x)
        G = orthonormal_rows(casadi, gamma(x))[:, :-1]
        exact = direction - G.T @ (G @ direction)
        columns = [exact if i == k else basis[:, i] for i in range(basis.shape[1])]
        basis = casadi.horzcat(*columns)
    return basis, drift


def exported_axes(casadi: Any, axes: TurnedAxes, x: Any) -> Any:
    """T(x) of axes that turn with an angle."""
    angle, i, j = axes.turning.angle, axes.turning.first, axes.turning.second
    basis = casadi.MX(casadi.DM.eye(x.shape[0]))
    basis[i, i] = basis[j, j] = casadi.cos(x[angle])
    basis[j, i] = casadi.sin(x[angle])
    basis[i, j] = -basis[j, i]
    return basis


def _orthonormal_frame(
    casadi: Any, frame: TangentFrame, gamma: Callable[[Any], Any], x: Any
) -> tuple[Any, Any]:
    """The frame measured by all states."""
    if frame.pattern is not None:
        return _closed_form(casadi, frame.pattern, gamma(x), frame.pull)
    origin = constant(casadi, frame.origin)
    away = x - origin
    turned = casadi.atan2(casadi.sin(away), casadi.cos(away))
    away = casadi.vertcat(
        *(turned[i] if i in frame.periodic else away[i] for i in range(x.shape[0]))
    )
    basis, normal = _start(casadi, frame, away), None
    for share in range(1, frame.steps + 1):
        normal = orthonormal_rows(casadi, gamma(origin + share / frame.steps * away))
        basis = basis - normal[:, :-1].T @ (normal[:, :-1] @ basis)
        for _ in range(POLISH):
            basis = basis @ (1.5 * casadi.DM.eye(basis.shape[1]) - 0.5 * basis.T @ basis)
    assert normal is not None
    return basis, _nearest(casadi, frame.pull, normal)


def _nearest(casadi: Any, wanted: Any, normal: Any) -> Any:
    """The velocity nearest to the one wanted (None: 0) that orthonormal rows allow."""
    G, g = normal[:, :-1], normal[:, -1]
    if wanted is None:
        return -G.T @ g
    wanted = constant(casadi, wanted)
    return wanted - G.T @ (G @ wanted + g)


def _closed_form(casadi: Any, pattern: Pattern, gamma: Any, pull: Any) -> tuple[Any, Any]:
    """`Pattern.__call__`."""
    n = gamma.shape[1] - 1
    drift: list[Any] = [0] * n

    def left(row: int) -> Any:
        return gamma[row, n] + sum(gamma[row, state] * drift[state] for _, state in pattern.told)

    for row, state in pattern.told:
        drift[state] = -left(row) / gamma[row, state]
    direction: list[Any] = [0] * n
    if pattern.rows:
        G = [[gamma[row, state] for state in pattern.states] for row in pattern.rows]
        rest = casadi.vertcat(
            *(
                casadi.horzcat(*entries, left(row))
                for row, entries in zip(pattern.rows, G, strict=True)
            )
        )
        normal = orthonormal_rows(casadi, rest)
        wanted = None if pull is None else np.asarray(pull)[list(pattern.states)]
        nearest = _nearest(casadi, wanted, normal)
        crossed = cross_product(G)
        length = casadi.sqrt(casadi.fmax(casadi.sumsqr(casadi.vertcat(*crossed)), TINY))
        for k, state in enumerate(pattern.states):
            drift[state], direction[state] = nearest[k], pattern.sign * crossed[k] / length
    columns = [
        casadi.vertcat(*(direction if free < 0 else [float(i == free) for i in range(n)]))
        for free in pattern.free
    ]
    basis, b = casadi.horzcat(*columns), casadi.vertcat(*drift)
    for row, state in pattern.follows:
        G = gamma[row, :n]
        told = (-(G @ basis) / G[state], -(G @ b + gamma[row, n]) / G[state])
        basis = casadi.vertcat(basis[:state, :], told[0], basis[state + 1 :, :])
        b = casadi.vertcat(b[:state], told[1], b[state + 1 :])
    return basis, b


def _start(casadi: Any, frame: TangentFrame, away: Any) -> Any:
    """The basis that the march begins with."""
    basis, turning = constant(casadi, frame.basis), frame.turning
    if turning is None:
        return basis
    sine, cosine = casadi.sin(away[turning.angle]), casadi.cos(away[turning.angle])
    rows = [basis[i, :] for i in range(basis.shape[0])]
    a, b = rows[turning.first], rows[turning.second]
    rows[turning.first], rows[turning.second] = cosine * a - sine * b, sine * a + cosine * b
    return casadi.vertcat(*rows)
