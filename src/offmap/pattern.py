"""Tangent frames in closed form, read off which states each row of a constraint mentions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from offmap.projection import project

TINY = 1e-30
"""Squared length of a column where rows vanish."""
_CROSSED = 3  # rows of a cross product, which is written out
_WAYS = 64  # in which some states may follow others, that are tried


@dataclass(frozen=True)
class Pattern:
    """A frame in closed form, read off which states each row of G mentions.

    A row that mentions one state says what the rate of that state is; a state that no row mentions
    is a direction of its own. If what is left has one state more than rows, one direction is left,
    their cross product, which never flips on the way from one state to another.
    """

    told: tuple[tuple[int, int], ...]
    """Rows that mention one state, once those before them have said theirs; and that state."""
    free: tuple[int, ...]
    """For each column of T the state that is its direction; -1: the cross product."""
    rows: tuple[int, ...]
    """The rows left."""
    states: tuple[int, ...]
    """The states left."""
    sign: float
    """Of the cross product, as the basis at the origin has it."""
    follows: tuple[tuple[int, int], ...] = ()
    """Rows that say the rate of a state by those of states before it; and that state. A trailer
    follows its tractor: the columns of T are motions of the tractor, whatever its trailer does."""

    def __call__(
        self, gamma: Float[Array, "c q"], pull: Float[Array, " n"] | None = None
    ) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T and b for one Γ; b is the admissible velocity nearest `pull`, if not nearest 0."""
        n = gamma.shape[1] - 1
        rest, drift = self.rest(gamma)
        direction: list[Array] = []
        if self.rows:
            wanted = jnp.zeros(n) if pull is None else pull
            nearest = project(wanted[jnp.array(self.states)], rest)
            for k, state in enumerate(self.states):
                drift[state] = nearest[k]
            direction = cross_product(
                [[gamma[row, state] for state in self.states] for row in self.rows]
            )
        return self._followed(gamma, self._basis(direction, n), jnp.stack(drift))

    def _followed(
        self, gamma: Float[Array, "c q"], basis: Float[Array, "n r"], drift: Float[Array, " n"]
    ) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T and b with the rates that follow from the others."""
        for row, state in self.follows:
            G, g = gamma[row, :-1], gamma[row, -1]
            basis = basis.at[state].set(-(G @ basis) / G[state])
            drift = drift.at[state].set(-(G @ drift + g) / G[state])
        return basis, drift

    def rest(self, gamma: Float[Array, "c q"]) -> tuple[Float[Array, "d s"], list[Array]]:
        """The rows left, over the states left, and the rates that the others tell."""
        drift = [jnp.zeros(())] * (gamma.shape[1] - 1)
        for row, state in self.told:
            drift[state] = -self._left(gamma, row, drift) / gamma[row, state]
        columns = [gamma[jnp.array(self.rows, int), state] for state in self.states]
        left = [self._left(gamma, row, drift) for row in self.rows]
        return jnp.stack([*columns, jnp.stack(left)], axis=1) if left else jnp.zeros((0, 1)), drift

    def _left(self, gamma: Array, row: int, drift: list[Array]) -> Array:
        """What the rates told so far leave of a row."""
        return gamma[row, -1] + sum(gamma[row, state] * drift[state] for _, state in self.told)

    def _basis(self, direction: list[Array], n: int) -> Float[Array, "n r"]:
        squared = sum((d**2 for d in direction), start=jnp.zeros(()))
        length = jnp.sqrt(jnp.maximum(squared, TINY))
        columns = []
        for free in self.free:
            column = [jnp.asarray(float(i == free)) for i in range(n)]
            if free < 0:
                for state, d in zip(self.states, direction, strict=True):
                    column[state] = self.sign * d / length
            columns.append(jnp.stack(column))
        return jnp.stack(columns, axis=1)


def pattern_of(
    mentions: Bool[np.ndarray, "c n"], follows: tuple[tuple[int, int], ...] = ()
) -> Pattern | None:
    """The closed form in which some states follow others; None if there is none."""
    rows, states = list(range(len(mentions))), list(range(mentions.shape[1]))
    for row, state in follows:
        rows.remove(row)
        states.remove(state)
    told: list[tuple[int, int]] = []
    while alone := [i for i in rows if np.sum(mentions[i, states]) == 1]:
        state = next(j for j in states if mentions[alone[0], j])
        told.append((alone[0], state))
        rows.remove(alone[0])
        states.remove(state)
    free = tuple(j for j in states if not np.any(mentions[rows, j]))
    left = tuple(j for j in states if j not in free)
    if len(rows) > _CROSSED or len(left) != len(rows) + bool(rows):
        return None
    columns = (*free, -1) if rows else free
    return Pattern(tuple(told), columns, tuple(rows), left, 1.0, follows)


def ways_to_follow(mentions: Bool[np.ndarray, "c n"]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sets of rows each of which alone, of those left, mentions a state; fewest first.

    Whatever the other states do, such a row says what that one does.
    """
    start: tuple[frozenset[int], tuple[tuple[int, int], ...]] = (frozenset(), ())
    queue, seen = [start], set[frozenset[int]]()
    while queue and len(seen) < _WAYS:
        gone, follows = queue.pop(0)
        left = np.array([i not in gone for i in range(len(mentions))])
        by = mentions & left[:, None]
        for state in np.flatnonzero(np.sum(by, axis=0) == 1):
            row = int(np.flatnonzero(by[:, state])[0])
            followers = frozenset(j for _, j in follows) | {int(state)}
            if followers in seen or np.sum(mentions[row]) == 1:
                continue
            seen.add(followers)
            longer = ((row, int(state)), *follows)
            yield longer
            queue.append((gone | {row}, longer))


def cross_product(rows: list[list[Any]]) -> list[Any]:
    """The vector at a right angle to c rows of c + 1 numbers, as long as their volume."""
    each = range(len(rows[0]))
    return [(-1) ** i * _determinant([row[:i] + row[i + 1 :] for row in rows]) for i in each]


def _determinant(rows: list[list[Any]]) -> Any:
    """By the first row."""
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:i] + row[i + 1 :] for row in rows[1:]] for i in range(len(rows)))
    parts = [(-1) ** i * rows[0][i] * _determinant(minor) for i, minor in enumerate(minors)]
    return sum(parts[1:], start=parts[0])
