"""Learned constraints as equations a person can read, where a short one fits."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

_TERMS = 2  # most terms in one coefficient of an equation
_EXPLAINED = 1e-3  # a share of the target that is not worth another term
_NEGLIGIBLE = 1e-2  # entries smaller than this share of their row are left out


@dataclass(frozen=True)
class Equation:
    """One row of Γ̂(x) [x'; 1] = 0 in words, with what it leaves unexplained."""

    text: str
    residual: float
    """As a share of the row, or in units of the noise in the data."""
    in_noise: bool = False

    def __str__(self) -> str:
        unit = " of the noise" if self.in_noise else ""
        return f"{self.text}   (residual {self.residual:.1e}{unit})"


def readable_equations(
    x: Float[np.ndarray, "N n"],
    gamma: Float[np.ndarray, "N c q"],
    names: tuple[str, ...],
    retained: tuple[tuple[str, ...], ...],
) -> tuple[Equation, ...]:
    """Fit each entry by at most two of {1, z, sin z, cos z} over the row's retained inputs z.

    The residual is the root mean square of what the terms leave of the row, relative to the row.
    """
    return tuple(_equation(x, gamma[:, i], names, kept) for i, kept in enumerate(retained))


def _equation(
    x: np.ndarray, row: np.ndarray, names: tuple[str, ...], retained: tuple[str, ...]
) -> Equation:
    features, labels = _library(x, names, retained)
    velocities = (*(f"{name}'" for name in names), "")
    energy = np.sqrt(np.mean(row**2))
    scale = np.sqrt(np.mean(row**2, axis=0)).max()
    parts, unexplained = [], np.zeros_like(row)
    for j, velocity in enumerate(velocities):
        if np.sqrt(np.mean(row[:, j] ** 2)) < _NEGLIGIBLE * scale:
            unexplained[:, j] = row[:, j]
            continue
        support, coefficients = _best_subset(features, row[:, j])
        unexplained[:, j] = row[:, j] - features[:, support] @ coefficients
        parts += [
            (coefficient, 0.0, "·".join(factor for factor in (labels[k], velocity) if factor))
            for k, coefficient in zip(support, coefficients, strict=True)
        ]
    residual = float(np.sqrt(np.mean(unexplained**2)) / energy)
    return Equation(sentence(parts), residual)


def _library(
    x: np.ndarray, names: tuple[str, ...], retained: tuple[str, ...]
) -> tuple[np.ndarray, list[str]]:
    columns, labels = [np.ones(len(x))], [""]
    for name in retained:
        if name in names:  # rotated directions of a full P have no column of their own
            z = x[:, names.index(name)]
            columns += [z, np.sin(z), np.cos(z)]
            labels += [name, f"sin({name})", f"cos({name})"]
    return np.stack(columns, axis=1), labels


def _best_subset(features: np.ndarray, target: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The fewest terms that explain the target, or whose residual no more terms cut to a tenth."""
    best: tuple[list[int], np.ndarray] = ([], np.zeros(0))
    best_residual = np.inf
    enough = _EXPLAINED**2 * np.mean(target**2)
    for size in range(1, _TERMS + 1):
        if best_residual < enough:
            break
        for support in combinations(range(features.shape[1]), size):
            chosen = features[:, support]
            coefficients = np.linalg.lstsq(chosen, target, rcond=None)[0]
            residual = np.mean((target - chosen @ coefficients) ** 2)
            margin = 1.0 if len(best[0]) == size else 1e-2
            if residual < margin * best_residual:
                best, best_residual = (list(support), coefficients), residual
    return best


def sentence(terms: list[tuple[float, float, str]]) -> str:
    """Terms (coefficient, its standard error, label) as an equation with right-hand side 0."""
    text = ""
    for coefficient, error, label in terms:
        size = f"{abs(coefficient):.4g}"
        if error > 1e-3 * abs(coefficient):
            size += f"(±{error:.1g})"
        body = label if size == "1" and label else f"{size}·{label}" if label else size
        sign = "−" if coefficient < 0 else "+" if text else ""
        text += f" {sign} {body}" if text else f"{sign}{body}"
    return f"{text} = 0"
