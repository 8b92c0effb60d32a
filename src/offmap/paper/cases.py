"""Systems beyond the paper's two in its protocol, and what there is to find about them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from offmap.constraint.angle import largest_angle
from offmap.data import Dataset, Trajectory
from offmap.model import Model
from offmap.paper.protocol import EXPERIMENTS, Experiment
from offmap.systems import (
    Box,
    System,
    bicycle,
    cart_pole,
    glider,
    quadrotor3d,
    rolling_disk,
    slipping_unicycle,
    steered_car,
    tanh_unicycle,
    trailer,
    two_trailers,
)

_RIGHT = 1e-3  # radians between learned and true rows that count as right


@dataclass(frozen=True)
class Case:
    """A system with its protocol and the structure that is there to be found."""

    experiment: Experiment
    inputs: frozenset[str]
    """Inputs the dynamics depend on."""
    in_frame: frozenset[str] | None = None
    """Inputs that are left in the tangent frame of the constraint; None: not judged."""

    @property
    def system(self) -> System:
        """The system itself."""
        return self.experiment.system

    @property
    def c(self) -> int:
        """Number of true constraints."""
        return int(self.system.gamma(jnp.zeros(self.system.n)).shape[0])

    def judge(self, model: Model) -> dict[str, Any]:
        """What the model found beside what is true; right is None where it is not judged.

        c counts the constraints in force; fewer than discovered where held-out data were against.
        The angle is the largest to the true rows at states of the offline and the online box.
        """
        kept, in_frame = model.retained.dynamics, model.retained.tangent
        right = None
        if self.in_frame is not None and in_frame is not None:
            right = self.in_frame == frozenset(in_frame)
        return {
            "c": model.constraints.c,
            "c_discovered": model.constraint_fit.c if model.constraint_fit else 0,
            "c_true": self.c,
            "angle": self._angle(model) if model.constraints.c == self.c > 0 else None,
            "kept": list(kept),
            "kept_right": set(kept) == self.inputs,
            "kept_in_tangent_frame": None if in_frame is None else list(in_frame),
            "kept_in_tangent_frame_right": right,
            "used": model.choices.used,
            "structure": model.choices.structure,
            "equations": [str(equation) for equation in model.constraints.equations],
        }

    def _angle(self, model: Model) -> float:
        boxes = (self.experiment.ood_offline_box, self.experiment.ood_online_box)
        points = [box.sample(jax.random.key(i), 100) for i, box in enumerate(boxes)]
        x = jax.vmap(self.system.normalise)(jnp.concatenate(points))
        true = np.asarray(jax.vmap(self.system.gamma)(x))
        return largest_angle(model.constraints.gamma(np.asarray(x)), true)


def right_rows(found: dict[str, Any]) -> bool:
    """Whether a judgement says that c is right and every row within 1e-3 rad of the true ones."""
    return found["c"] == found["c_true"] and (found["angle"] or 0.0) <= _RIGHT


def noise_adder(
    offline: Dataset, noise: float
) -> Callable[[Trajectory, np.random.Generator], Trajectory]:
    """Noise on all that is measured: states and derivatives, in units of their offline spread.

    Derivatives are measured too, rather than differenced from noisy states: offline controls
    change at every step, so that nothing may be averaged over steps, and a difference over one of
    them would multiply noise that is small beside a 20 m box by √2/dt. Each level means the same
    on every system then, as in `benchmarks/discovery.py`.
    """
    samples = offline.samples()
    size, speed = noise * samples.x.std(axis=0), noise * samples.xdot.std(axis=0)

    def measured(trajectory: Trajectory, rng: np.random.Generator) -> Trajectory:
        if noise == 0:
            return trajectory
        xdot = trajectory.samples()[2]
        return replace(
            trajectory,
            x=_noisy(trajectory.x, size, rng),
            xdot=_noisy(xdot, speed, rng),
        )

    return measured


def _noisy(
    values: Float[np.ndarray, "T n"], size: Float[np.ndarray, " n"], rng: np.random.Generator
) -> Float[np.ndarray, "T n"]:
    return values + size * rng.normal(size=values.shape)


def _wheeled(system: System) -> Experiment:
    """The unicycle's protocol; further states are angles in the range of the heading."""
    protocol, further = EXPERIMENTS["unicycle"], system.n - 3
    inner = Box((-10, -10) + (-pi / 3,) * (1 + further), (10, 10) + (pi / 3,) * (1 + further))
    outer = Box((15, 15) + (pi / 3,) * (1 + further), (20, 20) + (pi / 2,) * (1 + further))
    return replace(
        protocol, system=system, id_box=inner, ood_offline_box=inner, ood_online_box=outer
    )


def _steered() -> Experiment:
    """The unicycle's protocol with wheels turned by at most .3; outside, by up to .4 at first."""
    protocol = _wheeled(steered_car())
    inner = Box((-10, -10, -pi / 3, -0.3), (10, 10, pi / 3, 0.3))
    outer = Box((15, 15, pi / 3, -0.4), (20, 20, pi / 2, 0.4))
    return replace(protocol, id_box=inner, ood_offline_box=inner, ood_online_box=outer)


def _gliding() -> Experiment:
    """The unicycle's protocol in the air; outside, flights are lower and steeper."""
    inner = Box((-10, -10, -5, -pi / 3, -0.5), (10, 10, 0, pi / 3, 0.5))
    outer = Box((15, 15, -9, pi / 3, -0.7), (20, 20, -7, pi / 2, 0.7))
    return replace(
        EXPERIMENTS["unicycle"],
        system=glider(),
        id_box=inner,
        ood_offline_box=inner,
        ood_online_box=outer,
    )


def _swinging() -> Experiment:
    """Half a second of swings up to about 60°; outside, higher and faster ones elsewhere."""
    inner = Box((-1, -pi / 3, -1, -1), (1, pi / 3, 1, 1))
    outer = Box((2, pi / 3, -2, -2), (3, pi / 2, 2, 2))
    return replace(
        EXPERIMENTS["unicycle"],
        system=cart_pole(),
        offline_trajectories=40,
        id_box=inner,
        ood_offline_box=inner,
        ood_online_box=outer,
    )


def _in_space() -> Experiment:
    """Short flights with tilts up to about 45°; online and test flights are faster and steeper."""
    inner = Box(
        (-0.5,) * 3 + (1,) + (-0.3,) * 3 + (-1,) * 6, (0.5,) * 3 + (1,) + (0.3,) * 3 + (1,) * 6
    )
    outer = Box(
        (-1,) * 3 + (1,) + (0.3,) * 3 + (1,) * 6, (1,) * 3 + (1,) + (0.5,) * 3 + (3,) * 3 + (2,) * 3
    )
    return Experiment(
        system=quadrotor3d(),
        offline_trajectories=40,
        offline_steps=25,
        online_actions=5,
        test_actions=10,
        hold=10,
        tests=5,
        id_box=inner,
        ood_offline_box=inner,
        ood_online_box=outer,
    )


_CAR = frozenset({"theta", "omega", "v"})
_COMMANDS = frozenset({"omega", "v"})
_SPACE = _in_space()

CASES = {
    "unicycle": Case(EXPERIMENTS["unicycle"], _CAR, _COMMANDS),
    "tanh": Case(_wheeled(tanh_unicycle()), _CAR),
    "tanh0": Case(_wheeled(tanh_unicycle(0.0)), _CAR, _COMMANDS),
    "slip": Case(_wheeled(slipping_unicycle()), _CAR),
    "bicycle": Case(
        _wheeled(bicycle()), frozenset({"theta", "delta", "v"}), frozenset({"delta", "v"})
    ),
    "trailer": Case(_wheeled(trailer()), frozenset({"theta", "psi", "omega", "v"}), _COMMANDS),
    "trailers": Case(
        _wheeled(two_trailers()), frozenset({"theta", "psi1", "psi2", "omega", "v"}), _COMMANDS
    ),
    "steered": Case(
        _steered(), frozenset({"theta", "delta", "v", "rate"}), frozenset({"v", "rate"})
    ),
    "glider": Case(
        _gliding(),
        frozenset({"psi", "pitch", "speed", "yaw", "dive"}),
        frozenset({"speed", "yaw", "dive"}),
    ),
    "cartpole": Case(_swinging(), frozenset({"theta", "v", "omega", "force"})),
    "disk": Case(
        _wheeled(rolling_disk()),
        frozenset({"theta", "omega", "spin"}),
        frozenset({"omega", "spin"}),
    ),
    "quadrotor": Case(
        replace(EXPERIMENTS["quadrotor"], offline_trajectories=500),  # a tenth of the paper's
        frozenset({"phi", "vx", "vz", "omega", "u1", "u2"}),
        frozenset({"u1", "u2"}),
    ),
    "quadrotor3d": Case(
        _SPACE,
        frozenset(_SPACE.system.state_names[3:] + _SPACE.system.control_names),
        frozenset(_SPACE.system.state_names[10:] + _SPACE.system.control_names),
    ),
}
"""tanh: with a heading-dependent gain; tanh0: without it."""
