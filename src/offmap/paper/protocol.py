"""The paper's experimental protocols (section V): boxes, counts, horizons, noise, filtering."""

from dataclasses import dataclass
from math import pi

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.data import Dataset, Trajectory, smooth
from offmap.rollout import rollout
from offmap.systems import Box, System, planar_quadrotor, unicycle


@dataclass(frozen=True)
class Row:
    """One row of a table: where the data come from and how noisy the online data are."""

    key: str
    title: str
    out_of_distribution: bool
    noise: float
    """η: standard deviation of the noise on each measured online state."""


ROWS = (
    Row("id", "ID", False, 0.0),
    Row("ood00", "OOD η = 0", True, 0.0),
    Row("ood05", "OOD η = .05", True, 0.05),
    Row("ood10", "OOD η = .10", True, 0.10),
)


@dataclass(frozen=True)
class Trial:
    """One online trajectory and the test rollouts that start where it ends."""

    online: Trajectory
    test_starts: Float[np.ndarray, "tests n"]
    test_controls: Float[np.ndarray, "tests T m"]
    test_states: Float[np.ndarray, "tests S n"]


@dataclass(frozen=True)
class Experiment:
    """A system with the numbers of its protocol."""

    system: System
    offline_trajectories: int
    offline_steps: int
    """Steps of an offline trajectory; every step has its own random control."""
    online_actions: int
    test_actions: int
    hold: int
    """Steps for which each online or test action is held."""
    tests: int
    """Test rollouts for each online trajectory."""
    id_box: Box
    """Initial states of all data in the ID row."""
    ood_offline_box: Box
    ood_online_box: Box

    @property
    def horizon(self) -> int:
        """Steps of a test rollout."""
        return self.test_actions * self.hold

    def offline(
        self, key: PRNGKeyArray, *, out_of_distribution: bool, angles: tuple[str, ...] = ()
    ) -> Dataset:
        """The offline data set: many short trajectories under random controls."""
        box = self.ood_offline_box if out_of_distribution else self.id_box
        start_key, control_key = jax.random.split(key)
        starts = self._sample(box, start_key, self.offline_trajectories)
        controls = self.system.controls.sample(
            control_key, self.offline_trajectories, self.offline_steps
        )
        states = self._simulate(starts, controls)
        return Dataset(
            [
                Trajectory(x, u, dt=self.system.dt, source="offline")
                for x, u in zip(np.asarray(states), np.asarray(controls), strict=True)
            ],
            self.system.state_names,
            self.system.control_names,
            angles,
        )

    def trial(self, key: PRNGKeyArray, row: Row) -> Trial:
        """An online trajectory and its tests; the same key gives the same motion in every row."""
        start_key, online_key, test_key, noise_key = jax.random.split(key, 4)
        box = self.ood_online_box if row.out_of_distribution else self.id_box
        start = self._sample(box, start_key, 1)
        online_controls = self._held(online_key, self.online_actions, 1)
        online_states = self._simulate(start, online_controls)[0]
        test_controls = self._held(test_key, self.test_actions, self.tests)
        test_starts = jnp.broadcast_to(online_states[-1], (self.tests, self.system.n))
        return Trial(
            self._measured(online_states, online_controls[0], noise_key, row.noise),
            np.asarray(test_starts),
            np.asarray(test_controls),
            np.asarray(self._simulate(test_starts, test_controls)),
        )

    def _sample(self, box: Box, key: PRNGKeyArray, count: int) -> Float[Array, "count n"]:
        return jax.vmap(self.system.normalise)(box.sample(key, count))

    def _held(self, key: PRNGKeyArray, actions: int, count: int) -> Float[Array, "count T m"]:
        chosen = self.system.controls.sample(key, count, actions)
        return jnp.repeat(chosen, self.hold, axis=1)

    def _simulate(
        self, starts: Float[Array, "B n"], controls: Float[Array, "B T m"]
    ) -> Float[Array, "B S n"]:
        system = self.system
        return jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(starts, controls)

    def _measured(
        self,
        states: Float[Array, "S n"],
        controls: Float[Array, "T m"],
        key: PRNGKeyArray,
        noise: float,
    ) -> Trajectory:
        """What the sensors give: noisy states, low-passed, with derivatives from differences."""
        if noise == 0:
            return Trajectory(states, controls, dt=self.system.dt, source="online")
        noisy = states + noise * jax.random.normal(key, states.shape)
        measured = Trajectory(noisy, controls, dt=self.system.dt, source="online")
        # Motion changes only when the held action does; half that rate is kept.
        return smooth(measured, cutoff_hz=0.5 / (self.hold * self.system.dt))


EXPERIMENTS = {
    "unicycle": Experiment(
        system=unicycle(),
        offline_trajectories=20,
        offline_steps=25,
        online_actions=5,
        test_actions=20,
        hold=5,
        tests=5,
        id_box=Box((-10, -10, -pi / 3), (10, 10, pi / 3)),
        ood_offline_box=Box((-10, -10, -pi / 3), (10, 10, pi / 3)),
        ood_online_box=Box((15, 15, pi / 3), (20, 20, pi / 2)),
    ),
    "quadrotor": Experiment(
        system=planar_quadrotor(),
        offline_trajectories=5000,
        offline_steps=2,
        online_actions=5,
        test_actions=10,
        hold=10,
        tests=5,
        id_box=Box((-1, -1, -pi / 3, 0, -5, -pi / 3), (1, 1, pi / 3, 5, 0, pi / 3)),
        ood_offline_box=Box(
            (-0.5, -0.5, -pi / 4, 0, -2, -pi / 3), (0.5, 0.5, pi / 4, 2, 0, pi / 3)
        ),
        ood_online_box=Box((-1, -1, -pi / 3, 0, -5, -pi / 3), (1, 1, pi / 3, 5, 0, pi / 3)),
    ),
}
