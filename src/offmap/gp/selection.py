"""Choose a kernel by how well it extrapolates, not by how well it explains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from offmap.calls import at_each
from offmap.gp.fit import GPConfig, fit_gps
from offmap.gp.kernels import KernelName
from offmap.gp.verdict import OF_DRIVES, UNSURE, level_with_best, root_mean
from offmap.regressor import AbstractRegressor

_EDGE = 0.2  # share of the points held out
_FOLDS = 4  # in which groups that are not at the edge are left out
_SPARE = 0.15  # share of the rows to learn from that a fold may lose
_STATIONARY = ("rbf",)  # kernels that know no trend
_AFFINE = ("bilinear", "affine")  # kernels in which some inputs enter affinely
_LEVEL, _CHANCE = 1.05, 3.0  # ratio and standard errors by which these must be better than others
_FLOOR = 1e-6  # errors below this share of the outputs' spread leave nothing to improve


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel that best extrapolates."""

    name: KernelName
    affine_in: tuple[int, ...]
    """Inputs in which it is affine."""
    scores: dict[KernelName, float]
    """Root mean square error of every candidate that was tried."""
    errors: Float[np.ndarray, " G"]
    """Mean squared errors of this one, by held-out groups in the order of their codes."""


@dataclass(frozen=True)
class Fold:
    """Rows to learn from, and rows to predict of which the first `count` are those left out."""

    inside: np.ndarray
    outside: np.ndarray
    count: int

    @property
    def out(self) -> np.ndarray:
        """The rows left out."""
        return self.outside[: self.count]


def folds_of(masks: Sequence[Bool[np.ndarray, " N"]]) -> list[Fold]:
    """A fold for each mask of rows to leave out, all of one size where that costs few rows.

    They then share their compiled programs: some rows to learn from are dropped, and some of those
    to predict come again.
    """
    least = min(int(np.sum(~mask)) for mask in masks)
    most = max(int(np.sum(mask)) for mask in masks)
    folds = []
    for mask in masks:
        inside, outside = np.flatnonzero(~mask), np.flatnonzero(mask)
        spare = len(inside) - least
        if 0 < spare <= _SPARE * len(inside):
            inside = np.delete(inside, np.linspace(0, len(inside) - 1, spare).astype(int))
        padded = np.append(outside, np.resize(outside, most - len(outside)))
        folds.append(Fold(inside, padded, len(outside)))
    return folds


def edge_points(x: Float[np.ndarray, "N d"], groups: np.ndarray | None = None) -> np.ndarray:
    """Mask of the outermost fifth of the points: the largest standardised coordinate decides.

    With `groups`, the outermost fifth of whole groups: neighbours in time share their errors, and
    a held-out sample whose neighbours are not held out is no test.
    """
    if groups is not None and len(np.unique(groups)) > 1:
        codes = groups_by_reach(x, groups)
        return np.isin(groups, codes[-max(1, round(_EDGE * len(codes))) :])
    edge = np.zeros(len(x), dtype=bool)
    edge[np.argsort(_reach(x))[-max(1, int(_EDGE * len(x))) :]] = True
    return edge


def groups_by_reach(x: Float[np.ndarray, "N d"], groups: np.ndarray) -> np.ndarray:
    """The groups, from the one in the middle of the points to the outermost, by their medians."""
    order = np.lexsort([_reach(x), groups])
    codes, first, count = np.unique(groups[order], return_index=True, return_counts=True)
    sorted_reach = _reach(x)[order]
    median = (sorted_reach[first + (count - 1) // 2] + sorted_reach[first + count // 2]) / 2
    return codes[np.argsort(median)]


def _reach(x: Float[np.ndarray, "N d"]) -> Float[np.ndarray, " N"]:
    """Largest standardised coordinate of each point."""
    spread = x.std(axis=0)
    return np.max(np.abs(x - np.median(x, axis=0)) / np.where(spread > 0, spread, 1.0), axis=1)


def choose_kernel(
    x: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, "N p"],
    candidates: Sequence[KernelName],
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    controls: tuple[int, ...] = (),
    groups: np.ndarray | None = None,
    edge: np.ndarray | None = None,
    by_drives: bool = False,
    simplest: bool = True,
) -> ChosenKernel:
    """The candidate that best predicts the edge of the data from its middle.

    `edge` says which points are held out; None: the outermost. `by_drives` says that
    `groups` are whole drives, of which there are few. With `simplest` off, the least error wins,
    however simple the others are.

    The score is the root mean square error at the held-out edge, over all outputs, each measured
    in units of its spread. The likelihood would be a worse judge: it prefers kernels that explain
    the middle and then go astray. Candidates come simplest first: where the edge cannot tell two
    apart, the simpler wins, and once one leaves nothing to improve, the rest are not tried.
    """
    if len(candidates) == 1:
        return ChosenKernel(candidates[0], controls, {candidates[0]: 0.0}, np.zeros(1))
    edge = edge_points(x, groups) if edge is None else edge
    inner = [] if groups is None else _inside(x, groups, edge)
    far, *others = folds_of([edge, *inner])
    source = np.zeros(len(far.inside), dtype=int)
    # Outputs of a row of Γ share a scale: one that is zero up to round-off must not decide.
    size = np.sqrt(np.mean(y**2, axis=0))
    spread = np.maximum(y.std(axis=0), 1e-3 * size.max()) if config.centre else size.max()
    errors: dict[str, np.ndarray] = {}
    affine_in: dict[str, tuple[int, ...]] = {}

    def held_out(name: KernelName, split: tuple[int, ...]) -> np.ndarray:
        gps = fit_gps(
            x[far.inside],
            y[far.inside],
            source,
            key=key,
            config=replace(config, kernel=name),
            controls=split,
        )
        found = [_errors_of(gps, far, x, y, spread)]
        for fold in others:  # at fixed hyperparameters
            again = gps.conditioned(x[fold.inside], y[fold.inside])
            found.append(_errors_of(again, fold, x, y, spread))
        if groups is None:
            return found[0]
        rows = np.concatenate([fold.out for fold in (far, *others)])
        return by_group(np.sqrt(np.concatenate(found))[:, None], groups[rows])

    for name in candidates:
        alone = x.shape[1] == len(controls)
        if (name == "quadratic" and alone) or (name == "proportional" and not alone):
            continue  # "bilinear" multiplies controls, and only of these is 0 known to mean nothing
        splits = _splits(x.shape[1], controls) if name in _AFFINE else (controls,)
        if name == "bilinear" and x.shape[1] == 2:  # the same either way
            splits = splits[:1]
        each = [held_out(name, split) for split in splits]
        best = int(np.argmin([np.mean(error) for error in each]))
        errors[name], affine_in[name] = each[best], splits[best]
        if np.mean(errors[name]) <= _FLOOR**2:
            break
    scores = root_mean(errors)
    level = _level(errors, by_drives)
    winner = next(name for name in candidates if name in level)
    tried = {name: scores[name] for name in candidates if name in scores}
    if not simplest:
        winner = min(tried, key=lambda name: tried[name])
    return ChosenKernel(winner, affine_in[winner], tried, errors[winner])


def _splits(d: int, controls: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """In which inputs to try to be affine: the controls, or one at a time if all inputs are.

    Affine in all of them would be linear once more, and what turns a car is speed times steering.
    """
    if len(controls) < d or d == 1:
        return (controls,)
    return tuple((control,) for control in controls)


def _level(errors: dict[str, np.ndarray], by_drives: bool = False) -> tuple[str, ...]:
    """Kernels that the edge cannot tell from the best, but for two kinds that must be sure.

    Noisy points are at the edge by their noise, too, so that going back towards the mean looks good
    there by a few per cent; farther out it goes astray. And that no command is no motion is more
    than that functions are simple: what a constant would explain must not be there. `by_drives` it
    is one more simplicity: what drives of one place have in common looks like a constant.
    """
    unsure = OF_DRIVES if by_drives else UNSURE
    clear = level_with_best(errors, _FLOOR, level=_LEVEL, chance=_CHANCE, unsure=unsure)
    trends = [name for name in clear if name not in _STATIONARY]
    if trends:
        errors = {name: e for name, e in errors.items() if name not in _STATIONARY}
    level = level_with_best(errors, _FLOOR, unsure=unsure)
    if by_drives:
        return level
    sure = level_with_best(errors, _FLOOR, chance=0.0)
    return tuple(name for name in level if name != "proportional" or name in sure)


def _inside(x: np.ndarray, groups: np.ndarray, edge: np.ndarray) -> list[np.ndarray]:
    """Masks of groups that are not at the edge, in parts that are left out in turn.

    Few groups are at the edge; these tell whether a difference there is chance.
    """
    inner = groups_by_reach(x[~edge], groups[~edge])
    return [np.isin(groups, codes) for codes in np.array_split(inner, min(_FOLDS, len(inner)))]


def _errors_of(
    gps: AbstractRegressor, fold: Fold, x: np.ndarray, y: np.ndarray, spread: np.ndarray | float
) -> Float[np.ndarray, " F"]:
    """Mean squared error of each row that a fold leaves out."""
    mean = np.asarray(at_each(gps, jnp.asarray(x[fold.outside])))[: fold.count]
    return by_group((mean - y[fold.out]) / spread, None)


def by_group(error: Float[np.ndarray, "E p"], groups: np.ndarray | None) -> Float[np.ndarray, " G"]:
    """Mean squared error of each group of rows; each row is its own without groups."""
    squared = np.mean(error**2, axis=1)
    if groups is None:
        return squared
    _, index = np.unique(groups, return_inverse=True)
    return np.bincount(index, squared) / np.bincount(index)


def edge_errors(
    candidates: Sequence[Float[np.ndarray, "N _"]],
    y: Float[np.ndarray, "N p"],
    x: Float[np.ndarray, "N d"],
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    groups: np.ndarray | None = None,
) -> list[float]:
    """Error at the edge of x of GPs that see each of the candidate inputs instead of x."""
    edge = edge_points(x, groups)
    spread = np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    errors = []
    for seen in candidates:
        source = np.zeros(int(np.sum(~edge)), dtype=int)
        gps = fit_gps(seen[~edge], y[~edge], source, key=key, config=config)
        error = (np.asarray(at_each(gps, jnp.asarray(seen[edge]))) - y[edge]) / spread
        errors.append(float(np.sqrt(np.mean(error**2))))
    return errors
