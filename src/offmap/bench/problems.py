"""The data everyone is given: logs of a system, and controls to roll out."""

from dataclasses import dataclass, replace
from functools import cache

import jax
import numpy as np
from jaxtyping import Float

from offmap.data import Dataset
from offmap.paper.protocol import EXPERIMENTS, ROWS

HORIZON = 100
_ANGLES = {"unicycle": ("theta",), "quadrotor": ("phi",)}


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set, as trajectories and as inputs with velocities, and rollouts to predict."""

    name: str
    dataset: Dataset
    starts: Float[np.ndarray, "B n"]
    controls: Float[np.ndarray, "B T m"]

    @property
    def x(self) -> Float[np.ndarray, "N d"]:
        """Inputs (state, control) of a plain regressor."""
        samples = self.dataset.samples()
        return np.concatenate([samples.x, samples.u], axis=1)

    @property
    def y(self) -> Float[np.ndarray, "N n"]:
        """Velocities."""
        return self.dataset.samples().xdot

    @property
    def kernel_values(self) -> int:
        """Covariances that an exact GP of every output evaluates in all rollouts."""
        return self.y.size * self.starts.shape[0] * self.controls.shape[1]


@cache
def problem(system: str, samples: int, rollouts: int = 1000) -> Problem:
    """The paper's protocol for a system (OOD, no noise), with another number of samples.

    Args:
        system: unicycle or quadrotor.
        samples: offline and online ones together.
        rollouts: how many to predict.
    """
    experiment = EXPERIMENTS[system]
    online = experiment.online_actions * experiment.hold
    trajectories = (samples - online) // experiment.offline_steps
    if trajectories < 1:
        raise ValueError(
            f"The {system} needs {online + experiment.offline_steps} samples at least; got "
            f"{samples}. Ask for more."
        )
    experiment = replace(experiment, offline_trajectories=trajectories, tests=rollouts)
    offline_key, trial_key = jax.random.split(jax.random.key(0))
    offline = experiment.offline(offline_key, out_of_distribution=True, angles=_ANGLES[system])
    trial = experiment.trial(trial_key, ROWS[1])
    return Problem(
        f"{system} {samples}",
        offline.append(trial.online),
        trial.test_starts,
        trial.test_controls,
    )
