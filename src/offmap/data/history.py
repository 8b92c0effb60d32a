"""Past commands as further inputs, for robots whose actuators lag behind what they are told."""

import re
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from offmap.data.trajectory import Trajectory

__all__ = ["complete_history", "history_length", "history_names", "stack_history"]


def stack_history(u: Float[np.ndarray, "*batch T m"], k: int) -> Float[np.ndarray, "*batch P j"]:
    """Each command with the k before it, newest first: rows (u_t, u_{t−1}, …, u_{t−k}), t ≥ k.

    The first k commands have no full history and are dropped.
    """
    steps = u.shape[-2]
    if k < 0:
        raise ValueError(f"a history is 0 or more past commands; received {k}; give 0 for none")
    if k >= steps:
        raise ValueError(
            f"a history of k past commands needs more than k of them; received k = {k} and "
            f"{steps} commands; ask for fewer, or give longer trajectories"
        )
    return np.concatenate([u[..., k - i : steps - i, :] for i in range(k + 1)], axis=-1)


def history_names(names: tuple[str, ...], k: int) -> tuple[str, ...]:
    """Names of the columns of `stack_history`: v, then v[-1] for the command before, and so on."""
    return tuple(name if i == 0 else f"{name}[-{i}]" for i in range(k + 1) for name in names)


def history_length(names: tuple[str, ...]) -> int:
    """The k of `history_names`; 0 for names that are not of its making."""
    own = [name for name in names if not re.search(r"\[-\d+\]$", name)]
    k = len(names) // max(len(own), 1) - 1
    return k if k > 0 and tuple(names) == history_names(tuple(own), k) else 0


def with_past_commands(trajectory: Trajectory, k: int) -> Trajectory:
    """The trajectory with k past commands as further columns of u, and its first k steps gone."""
    xdot, middle, seen = trajectory.xdot, trajectory.middle, trajectory.seen
    return replace(
        trajectory,
        x=trajectory.x[k:],
        u=stack_history(trajectory.u, k),
        xdot=None if xdot is None else xdot[k:],
        middle=None if middle is None else middle[k:],
        seen=None if seen is None else stack_history(seen, k),
    )


def complete_history(
    controls: Float[np.ndarray, "*batch T j"],
    names: tuple[str, ...],
    before: Float[np.ndarray, "*batch k m"] | None = None,
) -> Float[np.ndarray, "*batch T p"]:
    """Controls with all columns of `names`: past commands are filled in where they are missing.

    Args:
        controls: Commands alone, or already with their history.
        names: Names of the control columns, as `history_names` makes them.
        before: The k commands before the first, oldest first; None holds the first one.
    """
    k = history_length(names)
    if k == 0 or controls.shape[-1] * (k + 1) != len(names):
        if before is not None:
            raise ValueError(
                f"`before` completes commands that lack their history; received controls with "
                f"{controls.shape[-1]} columns for {list(names)}; leave `before` out"
            )
        return controls
    if before is None:
        before = np.repeat(controls[..., :1, :], k, axis=-2)
    elif before.shape[-2:] != (k, controls.shape[-1]):
        raise ValueError(
            f"`before` holds the {k} commands before the first, with {controls.shape[-1]} columns; "
            f"received shape {before.shape}; give them oldest first"
        )
    past = np.broadcast_to(before, (*controls.shape[:-2], *before.shape[-2:]))
    return stack_history(np.concatenate([past, controls], axis=-2), k)
