"""What a fit discovered, in a few lines a person can act on."""

import numpy as np

from offmap.constraint import Equation
from offmap.data import Dataset
from offmap.pseudometric import Pseudometric


def summarise(
    dataset: Dataset,
    pseudometric: Pseudometric | None,
    threshold: float,
    kept: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    singular_values: np.ndarray,
    equations: tuple[Equation, ...],
) -> str:
    """The text of `Model.summary`."""
    samples = dataset.samples()
    per_source = ", ".join(
        f"{int(np.sum(samples.source == code))} {name}" for code, name in enumerate(dataset.sources)
    )
    lines = [
        f"data        {len(dataset)} trajectories, {len(samples)} samples ({per_source}), "
        f"{dataset.n} states, {dataset.m} controls"
    ]
    lines += _inputs(dataset, pseudometric, threshold, kept)
    lines += _constraints(rows, singular_values, equations)
    return "\n".join(lines)


def _inputs(
    dataset: Dataset, metric: Pseudometric | None, threshold: float, kept: tuple[str, ...]
) -> list[str]:
    if metric is None:
        return [f"inputs      all of {', '.join(dataset.input_names)} (no sparsification)"]
    if not metric.diagonal:
        return [
            f"inputs      kept directions: {'; '.join(kept)}",
            f"            eigenvalues of P: {_numbers(metric.weights)}",
        ]
    weights = dict(zip(metric.names, metric.weights, strict=True))
    dropped = [name for name in metric.names if name not in kept]
    return [
        f"inputs      kept {_weighted(kept, weights)}",
        f"            dropped {_weighted(dropped, weights) or 'none'} (below {threshold:g})",
    ]


def _constraints(
    rows: tuple[tuple[str, ...], ...], spectrum: np.ndarray, equations: tuple[Equation, ...]
) -> list[str]:
    lines = [f"constraints c = {len(equations)}"]
    if spectrum.size:
        lines[0] += f"   singular values {_numbers(spectrum)}"
        if not equations:
            lines.append("            no gap in the spectrum: predictions are not projected")
    for i, equation in enumerate(equations):
        inputs = f"   depends on {', '.join(rows[i])}" if rows else ""
        lines.append(f"            {equation}{inputs}")
    return lines


def _weighted(names: tuple[str, ...] | list[str], weights: dict[str, float]) -> str:
    return ", ".join(f"{name} {weights[name]:.3f}" for name in names)


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
