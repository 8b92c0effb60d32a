"""The predictor as plain data, so that a page can evaluate it without Python."""

import base64
from dataclasses import asdict
from typing import Any

import numpy as np

from offmap.axes import TurnedAxes
from offmap.constraint import DictionaryConstraint, LearnedConstraint, ProjectorConstraint
from offmap.dynamics import Dynamics, Frame
from offmap.gp import AbstractGPs, AbstractKernel
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.regressor import AbstractRegressor
from offmap.tangent import Guide
from offmap.types import Gamma


class NotExportable(ValueError):
    """A part of the model that only Python can evaluate."""


def export_variants(found: dict[str, Predictor]) -> dict[str, Any]:
    """Everything that the page's evaluator needs, each array as base64 of its float64 bytes."""
    if any(predictor.softness is not None for predictor in found.values()):
        raise NotExportable(
            "A page can evaluate firm projections; this model is drawn towards its constraint in "
            "the metric of its covariance. Its predictions are drawn, but cannot be steered."
        )
    return {
        name: {
            "dynamics": _dynamics(predictor.dynamics),
            "gamma": None if predictor.gamma is None else _gamma(predictor.gamma),
        }
        for name, predictor in found.items()
    }


def _dynamics(dynamics: Dynamics) -> dict[str, Any]:
    return {
        "reduction": _reduction(dynamics.reduction),
        "gps": _gps(dynamics.regressor),
        "frame": None if dynamics.frame is None else _frame(dynamics.frame),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    """Axes that turn have no constraint."""
    if isinstance(frame, TurnedAxes):
        return {"gamma": None, "turning": asdict(frame.turning)}
    return {
        "gamma": _gamma(frame.gamma),
        "origin": _array(frame.origin),
        "basis": _array(frame.basis),
        "periodic": list(frame.periodic),
        "steps": frame.steps,
        "measured": list(frame.measured),
        "pull": None if frame.pull is None else _array(frame.pull),
        "guide": None if frame.guide is None else _guide(frame.guide),
        "turning": None if frame.turning is None else asdict(frame.turning),
        "pattern": asdict(frame.pattern) if frame.pattern and frame.pattern.follows else None,
    }


def _guide(guide: Guide) -> dict[str, Any]:
    """A direction has the form of one row of equations."""
    sums = DictionaryConstraint(guide.library, guide.sums.T[None])
    return {"column": guide.column, "direction": _gamma(sums)}


def _gamma(gamma: Gamma) -> dict[str, Any]:
    if isinstance(gamma, DictionaryConstraint):
        return {
            "kind": "dictionary",
            "plain": list(gamma.library.plain),
            "trigonometric": list(gamma.library.trigonometric),
            "sums": [list(parts) for parts in gamma.library.sums],
            "pairs": [list(pair) for pair in gamma.library.pairs],
            "weights": _array(gamma.weights),
        }
    if isinstance(gamma, LearnedConstraint):
        rows = [
            {"reduction": _reduction(row.reduction), "gps": _gps(row.gps)} for row in gamma.rows
        ]
        return {"kind": "rows", "rows": rows}
    if isinstance(gamma, ProjectorConstraint):
        raise NotExportable(
            "A page can evaluate equations and rows; this constraint is held as a projector. Its "
            "predictions are drawn, but cannot be steered."
        )
    raise NotExportable(
        "A page can evaluate constraints that offmap learned; this one is a Python function. "
        "Its predictions are drawn, but cannot be steered."
    )


def _reduction(reduction: Reduction) -> dict[str, Any]:
    features = reduction.features
    return {
        "angles": [] if features is None else list(features.angles),
        "matrix": _array(reduction.matrix),
    }


def _gps(gps: AbstractRegressor) -> dict[str, Any]:
    if not isinstance(gps, AbstractGPs):
        raise NotExportable(
            "A page can evaluate Gaussian processes; this model is a neural ensemble. Its "
            "predictions are drawn, but cannot be steered."
        )
    scaling = {name: _array(getattr(gps.scaling, name)) for name in _SCALES}
    return {
        "kernel": _kernel(gps.kernel),
        **scaling,
        "x": _array(gps.x),
        "alpha": _array(gps.alpha),
    }


_SCALES = ("x_mean", "x_scale", "y_mean", "y_scale")
_KERNELS = {"RBF", "Linear", "Cosine", "ControlAffine", "Sum", "Product"}


def _kernel(kernel: AbstractKernel) -> dict[str, Any]:
    kind = type(kernel).__name__
    if kind not in _KERNELS:
        raise NotExportable(
            f"A page can evaluate the kernels {', '.join(sorted(_KERNELS))}; this model has "
            f"{kind}. Its predictions are drawn, but cannot be steered."
        )
    parts: dict[str, Any] = {"kind": kind}
    for name in kernel.__dataclass_fields__:
        value = getattr(kernel, name)
        if isinstance(value, AbstractKernel):
            parts[name] = _kernel(value)
        elif isinstance(value, bool):
            parts[name] = value
        else:
            parts[name] = list(value) if isinstance(value, tuple) else _array(value)
    return parts


def _array(values: Any) -> dict[str, Any]:
    array = np.ascontiguousarray(values, dtype="<f8")
    return {"shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}
