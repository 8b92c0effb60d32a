"""The constraint in space: the velocities a row of Γ allows, and where they point."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.model import Model
from offmap.projection import project, tangent_projector
from offmap.report.figures import BLACK, BLUE, ORANGE, Figure, escape
from offmap.report.trials import spread
from offmap.report.variants import known_gamma

_PARTICIPATES = 0.02  # least share of a row that counts
_GRID = (41, 9)
_SAMPLES = 400
_PATCHES = 50
_REACH = 0.05  # half the width of a patch, as a share of the scene


@dataclass(frozen=True)
class _Row:
    """One row of Γ at the samples, and what takes part in it."""

    model: Model
    index: int
    velocities: list[int]
    """Whose coefficient counts, heaviest first."""
    states: list[int]
    """On which the coefficients depend, strongest first."""

    def at(self, x: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N q"]:
        return _gamma(self.model, x)[:, self.index]


def scenes(model: Model) -> list[dict[str, Any]]:
    """For each row of Γ: its manifold, its feasible velocities, and what is drawn, in words."""
    gamma = known_gamma(model)
    if gamma is None or model.dataset.n < 2:
        return []
    count = _gamma(model, model.dataset.samples().x[:1]).shape[1]
    found = []
    for index in range(count):
        row = _row(model, index)
        figure, words = _manifold(row)
        found.append({"manifold": figure, "feasible": _feasible(row), "words": words})
    return found


def _gamma(model: Model, x: np.ndarray) -> np.ndarray:
    gamma = known_gamma(model)
    assert gamma is not None
    return np.asarray(at_each(gamma, x))


def _row(model: Model, index: int) -> _Row:
    samples = model.dataset.samples()
    rng = np.random.default_rng(0)
    x = samples.x[np.sort(rng.permutation(len(samples))[:_SAMPLES])]
    velocity = np.append(spread(samples.xdot), 1.0)

    def scaled(at: np.ndarray) -> np.ndarray:
        rows = _gamma(model, at)[:, index] * velocity
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    rows = scaled(x)
    weight = np.sqrt(np.mean(rows[:, :-1] ** 2, axis=0))
    change = []
    for state in range(model.dataset.n):  # does the row change when this state does?
        shuffled = x.copy()
        shuffled[:, state] = rng.permutation(shuffled[:, state])
        change.append(float(np.sqrt(np.mean((scaled(shuffled) - rows) ** 2))))
    return _Row(
        model,
        index,
        [int(j) for j in np.argsort(-weight) if weight[j] > _PARTICIPATES * weight.max()],
        [int(j) for j in np.argsort(-np.array(change)) if change[j] > _PARTICIPATES],
    )


def _manifold(row: _Row) -> tuple[Figure, str]:
    """The surface Γ(x) [x'; 1] = 0 over two velocities and a state, with measured samples."""
    dataset, samples = row.model.dataset, row.model.dataset.samples()
    names = dataset.state_names
    if len(row.velocities) >= 2:
        a, b = sorted(row.velocities[:2])
        surface, third, is_state = _lines(row, a, b)
        order = (f"{names[a]}'", f"{names[b]}'", names[third] if is_state else f"{names[third]}'")
        source = samples.x if is_state else samples.xdot
        points = np.stack([samples.xdot[:, a], samples.xdot[:, b], source[:, third]])
        drawn = {a, b} if is_state else {a, b, third}
        along = {third} if is_state else set()
    else:
        a = row.velocities[0]
        other = (a + 1) % dataset.n
        state = row.states[0] if row.states else None
        surface = _heights(row, a, other, state)
        order = (names[a] if state is None else names[state], f"{names[other]}'", f"{names[a]}'")
        source = samples.x[:, a if state is None else state]
        points = np.stack([source, samples.xdot[:, other], samples.xdot[:, a]])
        drawn, along = {a, other}, set() if state is None else {state}
    fixed = [names[i] for i in row.states if i not in along]
    fixed += [f"{names[j]}'" for j in row.velocities if j not in drawn]
    words = (
        f"The surface holds every ({', '.join(order)}) that row {row.index + 1} allows"
        + (f", with {', '.join(fixed)} at the middle of the data" if fixed else "")
        + "; dots are measured."
    )
    thin = np.random.default_rng(0).permutation(points.shape[1])[:_SAMPLES]
    traces = [
        {
            "type": "surface",
            **dict(zip("xyz", surface, strict=True)),
            "colorscale": "Cividis",
            "showscale": False,
            "opacity": 0.75,
            "hoverinfo": "skip",
        },
        {
            "type": "scatter3d",
            **dict(zip("xyz", points[:, thin], strict=True)),
            "mode": "markers",
            "marker": {"size": 2.2, "color": BLACK},
            "name": "measured",
        },
    ]
    return {"data": traces, "layout": _scene(order)}, words


def _lines(row: _Row, a: int, b: int) -> tuple[list[np.ndarray], int, bool]:
    """For each value of a third coordinate, the line of (a', b') that the row allows."""
    samples, n = row.model.dataset.samples(), row.model.dataset.n
    is_state = bool(row.states)
    third = (
        row.states[0]
        if is_state
        else next(j for j in [*row.velocities, *range(n)] if j not in (a, b))
    )
    values = _range((samples.x if is_state else samples.xdot)[:, third], _GRID[0])
    x = np.tile(np.median(samples.x, axis=0), (len(values), 1))
    velocity = np.tile(np.median(samples.xdot, axis=0), (len(values), 1))
    (x if is_state else velocity)[:, third] = values
    gamma = row.at(x)
    rest = np.delete(np.arange(n), [a, b])
    offset = gamma[:, -1] + np.sum(gamma[:, rest] * velocity[:, rest], axis=1)
    scale = spread(samples.xdot)[[a, b]]
    G = gamma[:, [a, b]] * scale
    length = np.linalg.norm(G, axis=1, keepdims=True)
    G = G / np.where(length > 0, length, 1.0)
    measured = samples.xdot[:, [a, b]] / scale
    middle = np.median(measured, axis=0)
    short = (G @ middle)[:, None] + offset[:, None] / np.where(length > 0, length, 1.0)
    foot = middle - short * G
    along = np.stack([-G[:, 1], G[:, 0]], axis=1)
    turn = np.sign(np.sum(along[1:] * along[:-1], axis=1))
    along[1:] *= np.cumprod(np.where(turn == 0, 1.0, turn))[:, None]
    reach = np.abs(measured - middle).max() * np.linspace(-1, 1, _GRID[1])
    grid = (foot[:, None, :] + reach[None, :, None] * along[:, None, :]) * scale
    return (
        [grid[..., 0], grid[..., 1], np.broadcast_to(values[:, None], grid.shape[:2])],
        third,
        is_state,
    )


def _heights(row: _Row, a: int, other: int, state: int | None) -> list[np.ndarray]:
    """A row with one velocity fixes it: a' as a function of a state, whatever another does."""
    samples = row.model.dataset.samples()
    shown = a if state is None else state
    values = _range(samples.x[:, shown], _GRID[0])
    x = np.tile(np.median(samples.x, axis=0), (len(values), 1))
    x[:, shown] = values
    gamma = row.at(x)
    height = -gamma[:, -1] / np.where(gamma[:, a] != 0, gamma[:, a], np.nan)
    across = _range(samples.xdot[:, other], _GRID[1])
    shape = (len(values), len(across))
    return [
        np.broadcast_to(values[:, None], shape),
        np.broadcast_to(across[None], shape),
        np.broadcast_to(height[:, None], shape),
    ]


def _feasible(row: _Row) -> Figure | None:
    """Patches of the velocities that are possible at some measured states, in three states."""
    dataset, samples = row.model.dataset, row.model.dataset.samples()
    if dataset.n < 3:
        return None
    wanted = [*sorted(row.velocities[:2]), *row.states, *range(dataset.n)]
    shown = list(dict.fromkeys(wanted))[:3]
    extent = np.ptp(samples.x[:, shown], axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    chosen = _apart(samples.x[:, shown] / extent)
    x = jnp.asarray(samples.x[chosen])
    rows = jnp.asarray(_gamma(row.model, samples.x[chosen])[:, row.index : row.index + 1])
    projectors = np.asarray(jax.vmap(tangent_projector)(rows))[:, shown]
    drift = (
        np.asarray(jax.vmap(lambda g: project(jnp.zeros(dataset.n), g))(rows))[:, shown] / extent
    )
    speed = np.abs(drift).max()
    shift = drift * (_REACH / speed) if speed > 1e-9 else drift
    centre = np.asarray(x)[:, shown] / extent + shift
    directions, sizes, _ = np.linalg.svd(projectors / extent[:, None], full_matrices=False)
    # The two directions in which the state can move most freely, as seen in these three axes.
    first, second = (
        directions[:, :, k] * np.where(sizes[:, k] > 1e-6 * sizes[:, 0], _REACH, 0.0)[:, None]
        for k in (0, 1)
    )
    corners = np.stack([centre + s * first + t * second for s, t in _CORNERS], axis=1) * extent
    vertices = corners.reshape(-1, 3).T
    base = 4 * np.arange(len(chosen))
    mesh = {
        "type": "mesh3d",
        **dict(zip("xyz", vertices, strict=True)),
        **{k: np.concatenate([base + p, base + q]) for k, (p, q) in _TRIANGLES.items()},
        "color": ORANGE,
        "opacity": 0.85,
        "lighting": {"ambient": 0.9, "diffuse": 0.2, "specular": 0},
        "flatshading": True,
        "hoverinfo": "skip",
        "name": "possible velocities",
    }
    return {
        "data": [mesh, _paths(row.model, shown)],
        "layout": _scene(tuple(dataset.state_names[i] for i in shown)),
    }


def _apart(x: np.ndarray) -> np.ndarray:
    """Rows far from each other, so that their patches do not cover one another."""
    chosen, distance = [0], np.full(len(x), np.inf)
    while len(chosen) < _PATCHES:
        distance = np.minimum(distance, np.linalg.norm(x - x[chosen[-1]], axis=1))
        if distance.max() < 2 * _REACH:
            break
        chosen.append(int(np.argmax(distance)))
    return np.array(chosen)


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))
_TRIANGLES = {"i": (0, 0), "j": (1, 2), "k": (2, 3)}


def _paths(model: Model, shown: list[int]) -> dict[str, Any]:
    columns: list[list[Any]] = [[], [], []]
    trajectories = model.dataset.trajectories
    for trajectory in trajectories[:: -(-len(trajectories) // 40)]:
        x = np.asarray(trajectory.x)[:: -(-len(trajectory.x) // 60)]
        for column, values in zip(columns, x[:, shown].T, strict=True):
            column += [*values, None]
    line = {"color": BLUE, "width": 3}
    return {
        "type": "scatter3d",
        **dict(zip("xyz", columns, strict=True)),
        "mode": "lines",
        "line": line,
        "name": "measured",
    }


def _scene(names: tuple[str, ...]) -> dict[str, Any]:
    axis = {"gridcolor": "#D5D9DE", "backgroundcolor": "#FFFFFF", "zerolinecolor": "#C9CED4"}
    titles = {
        f"{letter}axis": axis | {"title": {"text": escape(name)}, "nticks": 5}
        for letter, name in zip("xyz", names, strict=True)
    }
    camera = {"eye": {"x": 1.5, "y": -1.6, "z": 0.7}, "center": {"x": 0, "y": 0, "z": -0.15}}
    return {
        "scene": {**titles, "aspectmode": "cube", "camera": camera},
        "showlegend": False,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
    }


def _range(values: np.ndarray, count: int) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.linspace(low, high if high > low else low + 1.0, count)
