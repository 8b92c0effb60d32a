"""A differential-drive robot in MuJoCo, tracked by a marker: what hardware does to a unicycle."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

_PHYSICS_STEP = 0.002

# Wheels are spheres: they touch the floor in one point, whatever they carry. The caster has
# almost no friction of its own.
_MJCF = """
<mujoco>
  <option timestep="{step}" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="20 20 .1" friction="{grip} 0.002 0.0001"/>
    <body name="robot" pos="0 0 {radius}">
      <freejoint name="base"/>
      <geom type="cylinder" size=".07 .02" pos="-.01 0 .02" mass="{mass}"
            contype="0" conaffinity="0"/>
      <geom type="sphere" size="{caster}" pos="-.06 0 {caster_height}" mass=".02"
            friction=".02 0 0" priority="1"/>
      <body name="left" pos="0 {half} 0">
        <joint name="left" axis="0 1 0" damping=".001"/>
        <geom type="sphere" size="{radius}" mass=".05" friction="{grip} 0.002 0.0001" priority="2"/>
      </body>
      <body name="right" pos="0 -{half} 0">
        <joint name="right" axis="0 1 0" damping=".001"/>
        <geom type="sphere" size="{right}" mass=".05" friction="{grip} 0.002 0.0001" priority="2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <velocity joint="left" kv=".05" forcerange="-{torque} {torque}"/>
    <velocity joint="right" kv=".05" forcerange="-{torque} {torque}"/>
  </actuator>
</mujoco>
"""


class Capture(NamedTuple):
    """What motion capture and the controller logged, each on the same clock in seconds."""

    time: Float[np.ndarray, " N"]
    pose: Float[np.ndarray, "N 3"]
    """Marker position and heading, wrapped."""
    command: Float[np.ndarray, "N 2"]
    """Turn rate and speed asked for, at the same times."""


@dataclass(frozen=True)
class DiffDrive:
    """Two velocity-driven wheels and a caster; nothing about it is ideal.

    Motors follow commands with a delay and a lag, torque is limited, tyres slip, one wheel is a
    little larger, and the tracked marker sits off the axle with a heading of its own.
    """

    delay: float = 0.06
    """Seconds before a command reaches the motors."""
    motor_lag: float = 0.08
    """Time constant of the motors' response."""
    torque: float = 0.02
    """Largest torque of a motor, in newton metres."""
    grip: float = 0.6
    """Friction coefficient of tyres on the floor."""
    marker: tuple[float, float] = (0.03, 0.005)
    """Marker ahead of, and to the left of, the middle of the axle, in metres."""
    heading_bias: float = 0.02
    """Tracked heading minus true heading, in radians."""
    noise: tuple[float, float, float] = (0.001, 0.001, 0.003)
    """Standard deviation of tracked position (metres) and heading (radians)."""
    rate: float = 100.0
    """Poses per second."""
    wheel_radius: float = 0.033
    track: float = 0.16
    """Distance between the wheels."""

    def drive(
        self,
        start: Float[np.ndarray, " 3"],
        controls: Float[np.ndarray, "T 2"],
        dt: float,
        rng: np.random.Generator,
        *,
        lead: float = 1.0,
    ) -> Capture:
        """Record a drive: `lead` seconds of rest, the controls for dt each, `lead` seconds more.

        Time 0 is when the first control is sent; the marker then stands at `start`. The last
        control stays on to the end of the recording.
        """
        ride = Ride(self, start)
        count = round((2 * lead + len(controls) * dt) * self.rate) + 1
        time = np.arange(count) / self.rate - lead
        command = _sent(controls, dt, time)
        pose = np.empty((count, 3))
        for i in range(count):
            pose[i] = ride.pose
            ride.advance(_sent(controls, dt, time[i : i + 1] - self.delay)[0])
        pose += np.array(self.noise) * rng.normal(size=pose.shape)
        pose[:, 2] = (pose[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return Capture(time, pose, command)

    def wheel_speeds(self, command: np.ndarray) -> np.ndarray:
        """What the two wheels are asked to do."""
        omega, v = command
        difference = omega * self.track / 2
        return np.array([v - difference, v + difference]) / self.wheel_radius

    def tracked(self, data: Any) -> np.ndarray:
        """Where the marker is, and its heading."""
        w, x, y, z = data.qpos[3:7]
        theta = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        marker = data.qpos[:2] + _turn(theta) @ np.array(self.marker)
        return np.append(marker, theta + self.heading_bias)

    def mjcf(self) -> str:
        """The robot as MuJoCo reads it."""
        caster = 0.015
        return _MJCF.format(
            step=_PHYSICS_STEP,
            radius=self.wheel_radius,
            right=self.wheel_radius * 1.003,
            half=self.track / 2,
            caster=caster,
            caster_height=caster - self.wheel_radius,
            grip=self.grip,
            torque=self.torque,
            mass=1.0,
        )


class Ride:
    """A robot that stands at a start, for controllers in closed loop; without noise."""

    def __init__(self, robot: DiffDrive, start: Float[np.ndarray, " 3"]) -> None:
        self._robot, self._mujoco = robot, _mujoco()
        self._model = self._mujoco.MjModel.from_xml_string(robot.mjcf())
        self._data = self._mujoco.MjData(self._model)
        theta = start[2] - robot.heading_bias
        self._data.qpos[:2] = start[:2] - _turn(theta) @ np.array(robot.marker)
        self._data.qpos[3:7] = [np.cos(theta / 2), 0.0, 0.0, np.sin(theta / 2)]
        self._speeds = np.zeros(2)
        # What was sent but has not reached the motors yet.
        self._underway = [np.zeros(2)] * round(robot.delay * robot.rate)

    @property
    def pose(self) -> Float[np.ndarray, " 3"]:
        """Of the marker, its heading within half a turn of zero."""
        return self._robot.tracked(self._data)

    def hold(self, command: Float[np.ndarray, " 2"], dt: float) -> Float[np.ndarray, " 3"]:
        """Send a command for dt; the pose afterwards."""
        for _ in range(round(dt * self._robot.rate)):
            self._underway.append(np.asarray(command, dtype=float))
            self.advance(self._underway.pop(0))
        return self.pose

    def advance(self, command: Float[np.ndarray, " 2"]) -> None:
        """Move on to the next pose, under a command that has reached the motors."""
        share = -np.expm1(-_PHYSICS_STEP / self._robot.motor_lag)
        wanted = self._robot.wheel_speeds(command)
        for _ in range(round(1 / (self._robot.rate * _PHYSICS_STEP))):
            self._speeds += share * (wanted - self._speeds)
            self._data.ctrl[:] = self._speeds
            self._mujoco.mj_step(self._model, self._data)


def _sent(controls: np.ndarray, dt: float, time: np.ndarray) -> np.ndarray:
    """The command on the wire at each time: nothing before 0, the last one after the end."""
    index = np.floor(time / dt + 1e-9).astype(int)
    sent = controls[np.clip(index, 0, len(controls) - 1)]
    return np.where(index[:, None] >= 0, sent, 0.0)


def _turn(theta: float) -> np.ndarray:
    return np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])


def _mujoco() -> Any:
    try:
        import mujoco
    except ModuleNotFoundError as error:
        raise ValueError(
            "the differential-drive robot runs in MuJoCo, which is not installed; install it with "
            'pip install "offmap[mujoco]", or use recordings with --data DIR'
        ) from error
    return mujoco
