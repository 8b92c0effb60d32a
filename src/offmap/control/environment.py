"""A Gymnasium environment whose dynamics are a fitted model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import gymnasium
import numpy as np

from offmap.control.checks import check_controls
from offmap.model import Model
from offmap.rollout import step


class ModelEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A fitted model to learn a policy on; an episode ends where the model is not to be trusted.

    Observations are states. Actions lie in [−1, 1] and span the control bounds. A step is one step
    of the data. An episode terminates when trust falls below `least_trust` or the state leaves the
    observation space, and is truncated after `steps` steps. `info` has the trust of every step.

    Args:
        model: the fitted model.
        reward: reward of one state and control; plain numbers, not traced.
        low: least value of each control; by default the least in the data.
        high: largest value of each control; by default the largest in the data.
        starts: states (…, n) to start from, one drawn for each episode; by default the data's.
        steps: longest episode.
        least_trust: trust below which an episode ends.
        reach: how far states may leave the range of the data, as a multiple of that range.
    """

    def __init__(
        self,
        model: Model,
        reward: Callable[[np.ndarray, np.ndarray], float],
        *,
        low: Any = None,
        high: Any = None,
        starts: Any = None,
        steps: int = 200,
        least_trust: float = 0.1,
        reach: float = 10.0,
    ):
        if not 0 <= least_trust < 1:
            raise ValueError(f"`least_trust` lies in [0, 1); got {least_trust}. Try 0.1.")
        if steps < 1:
            raise ValueError(f"`steps` is at least 1; got {steps}. Raise it.")
        samples = model.dataset.samples()
        self._low = np.asarray(samples.u.min(axis=0) if low is None else low, float)
        self._high = np.asarray(samples.u.max(axis=0) if high is None else high, float)
        check_controls(model, self._low, self._high)
        self._starts = np.asarray(samples.x if starts is None else starts, float)
        if self._starts.shape[-1:] != (model.dataset.n,) or not self._starts.size:
            raise ValueError(
                f"`starts` needs states of {model.dataset.n} numbers; got shape "
                f"{self._starts.shape}. Give one row per start."
            )
        self._starts = self._starts.reshape(-1, model.dataset.n)
        least, most = samples.x.min(axis=0), samples.x.max(axis=0)
        margin = reach * np.maximum(most - least, 1e-6)
        self._least = np.minimum(least - margin, self._starts.min(axis=0))
        self._most = np.maximum(most + margin, self._starts.max(axis=0))
        self.observation_space = gymnasium.spaces.Box(self._least, self._most, dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (model.dataset.m,), np.float32)
        self._model, self._reward = model, reward
        self._steps, self._least_trust = steps, least_trust
        self._state, self._count = self._starts[0], 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode at one of the starts, or at `options["state"]`."""
        super().reset(seed=seed)
        chosen = self._starts[self.np_random.integers(len(self._starts))]
        state = np.array((options or {}).get("state", chosen), float)
        if not self._inside(state):
            raise ValueError(
                f"An episode starts inside the observation space; got {state}. Raise `reach`, or "
                f"give the state among `starts`."
            )
        self._state, self._count = state, 0
        return state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold the control of an action for one step."""
        share = (np.clip(np.asarray(action, float), -1, 1) + 1) / 2
        u = self._low + share * (self._high - self._low)
        reward = float(self._reward(self._state, u))
        model = self._model
        following, trust = _advance(
            model.means,
            model.trust_score,
            self._state,
            u,
            model.dataset.dt,
            model.integrator,
        )
        state = np.asarray(following)
        # Comparisons that NaN fails: a state or trust that is no number ends the episode too.
        ended = not (float(trust) >= self._least_trust and self._inside(state))
        state = np.where(np.isfinite(state), state, self._state)
        self._state, self._count = np.clip(state, self._least, self._most), self._count + 1
        info = {"trust": float(trust)}
        return self._state.copy(), reward, ended, self._count >= self._steps, info

    def _inside(self, state: np.ndarray) -> bool:
        same = state.shape == self._least.shape
        return same and bool(np.all((state >= self._least) & (state <= self._most)))


@eqx.filter_jit
def _advance(predictor, trust, x, u, dt, integrator):
    return step(predictor, x, u, dt, integrator), trust(x, u)
