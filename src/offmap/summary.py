"""What a fit discovered, in a few lines a person can act on."""

from dataclasses import dataclass, field

import numpy as np

from offmap.config import Config
from offmap.constraint import Equation
from offmap.data import Dataset
from offmap.pseudometric import Pseudometric


@dataclass(frozen=True)
class Choices:
    """What held-out extrapolation decided: scores are errors at the edge, the lowest won."""

    kernels: dict[str, float]
    """Error of each candidate kernel of the dynamics that was tried, simplest first."""
    structure: dict[str, float]
    """Error without constraint ("none"), drawn towards it in the metric of the GP's covariance
    ("soft"), projected onto it ("projected"), in its tangent frame ("tangent"), and in
    axes of the robot's own without a constraint ("turned")."""
    used: str = ""
    """Which of these structures the model has."""
    disagreement: str = ""
    """Where pseudometric and Gaussian process kept different inputs: who was right."""
    rollouts: dict[str, float] = field(default_factory=dict)
    """Error of the same along held-out trajectories; empty where one step decides."""
    across: tuple[str, ...] = ()
    """States at whose middle drives were split for both, one half to predict the other."""
    kernel: str = ""
    """The kernel of the dynamics; of two that extrapolate equally well, the simpler."""
    tangent_kernel: str = ""
    """The kernel of the dynamics in the tangent frame."""
    representation: str = ""
    """How the constraint is held: "dictionary", "projector" or "rows"."""
    representations: dict[str, float] = field(default_factory=dict)
    """Error of each representation at the held-out edge; empty where none had to be compared."""
    angles: tuple[str, ...] = ()
    """States that were found to be angles; empty where they were declared."""
    left_out: tuple[str, ...] = ()
    """Equations that samples obey, and that predict held-out ones worse than none."""
    cut_from: int = 0
    """Number of trajectories that were cut into stretches, to hold some out; 0: none were."""
    derivative_error: tuple[float, ...] = ()
    """What derivatives told half-way may be off by: 10 times their last correction, each of x'."""
    turning: tuple[str, ...] = ()
    """Two states whose rates are seen from axes that turn with a third, where these are used."""


@dataclass(frozen=True)
class Retained:
    """Names of the inputs kept by the dynamics, and by each row of the constraint."""

    dynamics: tuple[str, ...]
    constraint: tuple[tuple[str, ...], ...]
    tangent: tuple[str, ...] | None = None
    """Kept by the dynamics in the tangent frame of the constraint, or in a robot's own axes, where
    these are used."""


def summarise(
    dataset: Dataset,
    pseudometric: Pseudometric | None,
    config: Config,
    retained: Retained,
    singular_values: np.ndarray,
    equations: tuple[Equation, ...],
    choices: Choices,
) -> str:
    """The text of `Model.summary`."""
    samples = dataset.samples()
    per_source = ", ".join(
        f"{int(np.sum(samples.source == code))} {name}" for code, name in enumerate(dataset.sources)
    )
    logs = f"{len(dataset)} trajectories"
    if choices.cut_from:
        logs = f"{len(dataset)} stretches of {choices.cut_from} trajectories"
    lines = [
        f"data        {logs}, {len(samples)} samples ({per_source}), "
        f"{dataset.n} states, {dataset.m} controls",
        f"derivatives {'; '.join(how_told(dataset, config))}",
    ]
    if config.hold_out == "trajectories":
        lines.append(
            "choices     by whole drives held out: errors of neighbouring samples are alike"
        )
    lines += _inputs(dataset, pseudometric, config.pseudometric.threshold, retained.dynamics)
    if choices.disagreement:
        lines.append(f"            {choices.disagreement}")
    if choices.angles:
        lines.append(
            f"angles      {', '.join(choices.angles)} (found: by sine and cosine they extrapolate)"
        )
    if len(choices.kernels) > 1:
        lines.append(f"kernel      {_ranked(choices.kernels, choices.kernel)}")
    rejected = "projected" in choices.structure
    lines += _constraints(retained.constraint, singular_values, equations, rejected)
    lines += [f"            left out, of no help held out: {text}" for text in choices.left_out]
    if choices.representations:
        held = _ranked(choices.representations, choices.representation)
        lines.append(f"            held as {held}")
    if len(choices.structure) > 1:
        lines.append(f"structure   {_ranked(choices.structure, choices.used)}")
        if choices.rollouts:
            lines.append(f"            (held-out rollouts: {_listed(choices.rollouts)})")
        if choices.across:
            split = ", ".join(choices.across)
            lines.append(f"            (drives on either side in {split}, from the others)")
    if retained.tangent is not None:
        where = "tangent     dynamics along the constraint"
        if choices.turning:
            first, second, angle = choices.turning
            where = f"axes        {first}', {second}' turn with {angle}: dynamics seen from there"
        lines.append(
            f"{where} depend on {', '.join(retained.tangent)}"
            + (f" (kernel {choices.tangent_kernel})" if choices.tangent_kernel else "")
        )
    return "\n".join(lines)


def how_told(dataset: Dataset, config: Config) -> list[str]:
    """Where derivatives come from, which commands they are due to, and how rollouts go on."""
    measured = [log.xdot is not None and log.middle is None for log in dataset]
    told = {
        "forward": "differences of states, at the first of each step",
        "middle": "differences of states, half-way between them",
    }.get(config.derivatives, "noisy states, smoothed")
    if config.bandwidth is not None:
        told += f" over ±{config.bandwidth:.2g} s"
        told += " (what the model leaves of them)" if config.timing == (0, 0) else ""
    said = ["as logged" if all(measured) else f"as logged, else {told}" if any(measured) else told]
    delay, width = (steps * dataset.dt for steps in config.timing or (0, 0))
    if delay or width:
        said.append(f"due to commands of {delay:.2g} s before, averaged over ±{width:.2g} s")
    said.append(f"rollouts by {'RK4' if config.integrator == 'rk4' else 'Euler'}")
    return said


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
    weights = metric.input_weights
    dropped = [name for name in weights if name not in kept]
    against = any((weight > threshold) != (name in kept) for name, weight in weights.items())
    rule = f"below {threshold:g}, or as slopes say" if against else f"below {threshold:g}"
    return [
        f"inputs      kept {_weighted(kept, weights)}",
        f"            dropped {_weighted(dropped, weights) or 'none'} ({rule})",
    ]


def _constraints(
    rows: tuple[tuple[str, ...], ...],
    spectrum: np.ndarray,
    equations: tuple[Equation, ...],
    rejected: bool,
) -> list[str]:
    lines = [f"constraints c = {len(equations)}"]
    if spectrum.size:
        lines[0] += f"   singular values {_numbers(spectrum)}"
        if not equations:
            reason = "no help at the held-out edge" if rejected else "no gap in the spectrum"
            lines.append(f"            {reason}: predictions are not projected")
    for i, equation in enumerate(equations):
        inputs = f"   depends on {', '.join(rows[i])}" if rows else ""
        lines.append(f"            {equation}{inputs}")
    return lines


def _ranked(scores: dict[str, float], best: str = "") -> str:
    """The winner, and the error of every candidate at the held-out edge of the data."""
    best = best or min(scores, key=lambda name: scores[name])
    return f"{best}   (error at the held-out edge: {_listed(scores)})"


def _listed(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {score:.2g}" for name, score in scores.items())


def _weighted(names: tuple[str, ...] | list[str], weights: dict[str, float]) -> str:
    return ", ".join(f"{name} {weights[name]:.3f}" for name in names)


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
