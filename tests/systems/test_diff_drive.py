"""The MuJoCo robot: near enough to a unicycle to be driven, far enough to be hardware."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from offmap.data import Stream, align
from offmap.systems.diff_drive import DiffDrive, Ride

QUIET = DiffDrive(noise=(0.0, 0.0, 0.0))
START = np.array([0.3, -0.2, 0.7])


def drive(robot, omega, v, seconds=4.0, seed=0):
    controls = np.tile([omega, v], (round(seconds / 0.1), 1))
    return robot.drive(START, controls, 0.1, np.random.default_rng(seed))


def test_the_marker_starts_where_it_is_told_and_rests():
    capture = drive(QUIET, 0.1, 0.1)
    before = capture.pose[capture.time < 0]
    np.testing.assert_allclose(before, np.tile(START, (len(before), 1)), atol=2e-3)


def test_it_goes_and_turns_about_as_told():
    capture = drive(QUIET, 0.2, 0.15)
    late = (capture.time > 2) & (capture.time < 4)
    seconds = 2.0
    turned = np.ptp(np.unwrap(capture.pose[late, 2]))
    path = np.linalg.norm(np.diff(capture.pose[late, :2], axis=0), axis=1).sum()
    assert turned == pytest.approx(0.2 * seconds, rel=0.1)
    assert path == pytest.approx(0.15 * seconds, rel=0.1)


def lateral(capture):
    """Side speed of the tracked pose against its own heading, forward speed and turn rate."""
    keep = (capture.time > 1.5) & (capture.time < 3.9)
    velocity = np.gradient(capture.pose[:, :2], capture.time, axis=0)[keep]
    theta = np.unwrap(capture.pose[:, 2])
    turn = np.gradient(theta, capture.time)[keep]
    cos, sin = np.cos(theta[keep]), np.sin(theta[keep])
    side = (-sin * velocity[:, 0] + cos * velocity[:, 1]).mean()
    return side, (cos * velocity[:, 0] + sin * velocity[:, 1]).mean(), turn.mean()


def test_the_ideal_constraint_fails_by_marker_and_heading_bias():
    side, forward, turn = lateral(drive(QUIET, 0.2, 0.15))
    assert side == pytest.approx(QUIET.marker[0] * turn - QUIET.heading_bias * forward, abs=5e-4)
    ideal = replace(QUIET, marker=(0.0, 0.0), heading_bias=0.0)
    assert abs(lateral(drive(ideal, 0.2, 0.15))[0]) < 3e-4


def test_delay_and_motor_lag_are_seen_in_the_recording():
    rng = np.random.default_rng(3)
    controls = np.repeat(rng.uniform([-0.2, 0.0], [0.2, 0.2], (8, 2)), 10, axis=0)
    robot = DiffDrive()
    capture = robot.drive(START, controls, 0.1, rng)
    found = align(
        Stream(capture.time, capture.pose, ("px", "py", "theta"), angles=(2,)),
        Stream(capture.time, capture.command, ("omega", "v"), hold=True),
    )
    assert found.lag == pytest.approx(robot.delay + robot.motor_lag, abs=0.04)


def test_weak_motors_cannot_follow():
    weak = replace(QUIET, torque=2e-5)
    assert lateral(drive(weak, 0.0, 0.2))[1] < 0.5 * lateral(drive(QUIET, 0.0, 0.2))[1]


def test_noise_is_millimetres_and_seeded():
    one, same = drive(DiffDrive(), 0.1, 0.1, 1.0), drive(DiffDrive(), 0.1, 0.1, 1.0)
    np.testing.assert_array_equal(one.pose, same.pose)
    rest = one.pose[one.time < 0]
    np.testing.assert_allclose(rest.std(axis=0), [1e-3, 1e-3, 3e-3], rtol=0.4)


def test_a_missing_mujoco_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ValueError, match=r'pip install "offmap\[mujoco\]"'):
        drive(QUIET, 0.1, 0.1)


def test_a_ride_in_closed_loop_is_the_drive_that_was_recorded():
    controls = np.random.default_rng(0).uniform([-0.2, 0.0], [0.2, 0.2], (8, 2))
    recorded = QUIET.drive(START, controls, 0.1, np.random.default_rng(0), lead=0.0).pose
    ride = Ride(QUIET, START)
    poses = [ride.hold(command, 0.1) for command in controls]
    np.testing.assert_allclose(poses, recorded[10::10], atol=1e-12)
