"""Streams on their own clocks, from a robot whose true motion and lag are known."""

import numpy as np
import pytest

from offmap.data import Stream, align
from offmap.data.smoother import choose_bandwidth, local_cubic

LAG = 0.2
NAMES = ("px", "py", "theta")
POSE_NOISE = np.array([1e-3, 1e-3, 3e-3])


def commands(t):
    """Turn rate and speed at times t; held at their first value before 0."""
    t = np.maximum(t, 0.0)
    omega = 0.4 * np.sin(0.9 * t) + 0.2 * np.sin(2.3 * t)
    return np.stack([omega, 0.1 + 0.04 * np.sin(0.7 * t)], axis=1)


class Truth:
    """A unicycle that follows the commands LAG later."""

    def __init__(self, seconds):
        self.time = np.arange(0.0, seconds, 1e-3)
        u = commands(self.time - LAG)
        theta = 3.0 + np.concatenate([[0.0], np.cumsum(u[:-1, 0]) * 1e-3])
        self.xdot = np.stack([u[:, 1] * np.cos(theta), u[:, 1] * np.sin(theta), u[:, 0]], axis=1)
        path = np.concatenate([np.zeros((1, 2)), np.cumsum(self.xdot[:-1, :2], axis=0) * 1e-3])
        self.x = np.concatenate([path, theta[:, None]], axis=1)

    def at(self, t, what="x"):
        table = getattr(self, what)
        return np.stack([np.interp(t, self.time, column) for column in table.T], axis=1)


TRUTH = Truth(60.0)


def logged(seed=0, noise=POSE_NOISE):
    """Times and values of poses (wrapped, noisy) and of commands, on irregular clocks."""
    rng = np.random.default_rng(seed)
    pose_time = np.cumsum(rng.uniform(0.010, 0.024, 3400))
    pose_time = pose_time[pose_time < 55.0]
    pose = TRUTH.at(pose_time) + noise * rng.normal(size=(len(pose_time), 3))
    pose[:, 2] = (pose[:, 2] + np.pi) % (2 * np.pi) - np.pi
    command_time = np.cumsum(rng.uniform(0.005, 0.015, 5500))
    return pose_time, pose, command_time, commands(command_time)


def aligned(pose_time, pose, command_time, command, **options):
    poses = Stream(pose_time, pose, NAMES, angles=(2,))
    return align(poses, Stream(command_time, command, ("omega", "v"), hold=True), **options)


@pytest.fixture(scope="module")
def clean():
    return aligned(*logged())


def test_lag_is_recovered(clean):
    assert clean.lag == pytest.approx(LAG, abs=0.02)


def test_no_lag_is_invented():
    pose_time, pose, command_time, _ = logged()
    found = aligned(pose_time, pose, command_time, commands(command_time - LAG))
    assert found.lag == pytest.approx(0.0, abs=0.02)


def test_too_few_steps_for_a_lag_are_said_to_be():
    pose_time, pose, command_time, command = logged()
    early, sent = pose_time < 5.0, command_time < 5.0
    found = aligned(pose_time[early], pose[early], command_time[sent], command[sent], bandwidth=0.4)
    assert found.lag == 0.0
    assert "too few steps to estimate it" in found.report()


def test_a_constant_command_has_no_lag():
    pose_time, pose, command_time, command = logged()
    found = aligned(pose_time, pose, command_time, np.ones_like(command))
    assert found.lag == 0.0


def test_states_and_derivatives_are_those_of_the_truth(clean):
    (run,) = clean.runs
    ends = run.start + run.dt * np.arange(run.T + 1)
    middles = ends[:-1] + run.dt / 2
    turns = np.round((run.x[0, 2] - TRUTH.at(ends[:1])[0, 2]) / (2 * np.pi)) * 2 * np.pi
    offset = np.array([0, 0, turns])
    error = run.x - offset - TRUTH.at(ends)
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 0.6 * POSE_NOISE)
    slopes = run.xdot - TRUTH.at(middles, "xdot")
    assert np.all(np.sqrt(np.mean(slopes**2, axis=0)) < [0.004, 0.004, 0.02])
    np.testing.assert_allclose(run.u, commands(middles - LAG), atol=0.02)


def test_the_gain_of_an_actuator_is_not_lost_in_the_smoother():
    # Commands change every .3 s, and slopes are averaged over nearly a second.
    rng = np.random.default_rng(0)
    time = np.arange(0, 60, 0.01)
    command = rng.normal(size=(200, 1))
    rate = 1.3 * command[np.minimum((time / 0.3).astype(int), 199)]
    pose = np.cumsum(rate, axis=0) * 0.01 + 1e-4 * rng.normal(size=rate.shape)
    found = align(
        Stream(time, pose, ("p",)),
        Stream(0.3 * np.arange(200), command, ("u",), hold=True),
        bandwidth=0.4,
        lag=0.0,
    )
    run = found.runs[0]
    gain, of_one_step = (np.vdot(u, run.xdot) / np.vdot(u, u) for u in (run.seen, run.u))
    assert gain == pytest.approx(1.3, rel=0.01)
    assert of_one_step < 1.2, "the command of one step alone explains too little"
    np.testing.assert_array_equal(run.samples().u, run.seen)


def test_noise_is_reported(clean):
    np.testing.assert_allclose(clean.noise, POSE_NOISE, rtol=0.25)


def test_bandwidth_is_near_the_best_for_derivatives():
    pose_time, pose, _, _ = logged(seed=1)
    values = np.concatenate([pose[:, :2], np.unwrap(pose[:, 2:], axis=0)], axis=1)
    at = np.arange(2.0, 53.0, 0.1)
    truth = TRUTH.at(at, "xdot")

    def error(bandwidth):
        slope = local_cubic(pose_time, values, at, bandwidth).slope
        return np.sqrt(np.mean(((slope - truth) / truth.std(axis=0)) ** 2))

    least = min(error(h) for h in np.geomspace(0.1, 2.0, 25))
    assert error(choose_bandwidth(pose_time, values, 0.1)) < 2.0 * least


def test_bandwidth_grows_with_the_noise():
    chosen = []
    for scale in (0.1, 1.0, 10.0):
        pose_time, pose, _, _ = logged(seed=2, noise=scale * POSE_NOISE)
        chosen.append(choose_bandwidth(pose_time, np.unwrap(pose, axis=0), 0.1))
    assert chosen[0] < chosen[1] < chosen[2]


def test_local_cubics_are_exact_on_cubics():
    rng = np.random.default_rng(3)
    time = np.sort(rng.uniform(0, 5, 300))
    values = np.stack([1 + 2 * time - 0.5 * time**3, 1e6 + time], axis=1)
    at = np.linspace(1, 4, 20)
    fitted = local_cubic(time, values, at, 0.5)
    np.testing.assert_allclose(fitted.value[:, 0], 1 + 2 * at - 0.5 * at**3, rtol=1e-9)
    np.testing.assert_allclose(
        fitted.slope, np.stack([2 - 1.5 * at**2, np.ones(20)], axis=1), atol=1e-6
    )


def spans(found):
    return [(run.start, run.start + run.T * run.dt) for run in found.runs]


def test_nan_rows_are_dropped_and_reported():
    pose_time, pose, *rest = logged()
    pose[1000:1003, 1] = np.nan
    found = aligned(pose_time, pose, *rest)
    assert any("3 rows with NaN" in fault.what for fault in found.faults)
    assert len(found.runs) == 1


def test_a_long_stretch_of_nan_splits():
    pose_time, pose, *rest = logged()
    pose[1000:1040] = np.nan
    found = aligned(pose_time, pose, *rest)
    assert any("gap of" in fault.what for fault in found.faults)
    assert len(found.runs) == 2
    (_, first_end), (second_start, _) = spans(found)
    assert first_end <= pose_time[999] and second_start >= pose_time[1040]


def test_too_many_nan_rows_are_refused():
    pose_time, pose, *_ = logged()
    pose[::10] = np.nan
    with pytest.raises(ValueError, match=r"at most 5% .* rows with NaN or inf, first at row 0"):
        Stream(pose_time, pose, NAMES)


def test_a_clock_that_steps_back_is_reported():
    pose_time, pose, *rest = logged()
    pose_time[2000:2004] -= 0.5
    found = aligned(pose_time, pose, *rest)
    assert any("4 rows whose clock does not advance" in fault.what for fault in found.faults)


def test_a_clock_that_starts_again_is_refused():
    pose_time, pose, *_ = logged()
    pose_time[2000:] -= pose_time[2000]
    with pytest.raises(ValueError, match=r"clock does not advance, first at row 2000"):
        Stream(pose_time, pose, NAMES)


def test_a_stream_that_ends_early_is_reported():
    pose_time, pose, command_time, command = logged()
    kept = command_time < 30.0
    found = aligned(pose_time, pose, command_time[kept], command[kept])
    assert any("commands end" in fault.what and "early" in fault.what for fault in found.faults)
    assert max(end for _, end in spans(found)) < 30.0 + LAG + 0.2


def test_streams_that_never_meet_are_refused():
    pose_time, pose, command_time, command = logged()
    with pytest.raises(ValueError, match=r"must overlap in time"):
        aligned(pose_time, pose, command_time + 1000.0, command)


@pytest.mark.parametrize("jump", [np.pi, -np.pi, 0.5])
def test_a_heading_that_jumps_splits(jump):
    pose_time, pose, *rest = logged()
    pose[1500:, 2] += jump
    found = aligned(pose_time, pose, *rest)
    when = (pose_time[1499] + pose_time[1500]) / 2
    assert [f for f in found.faults if "theta jumps" in f.what and f.time == pytest.approx(when)]
    assert len(found.runs) == 2
    assert all(end < when or start > when for start, end in spans(found))
    assert all(np.abs(run.xdot[:, 2]).max() < 1.0 for run in found.runs)


def test_a_single_outlier_is_dropped():
    pose_time, pose, *rest = logged()
    reference = aligned(pose_time, pose, *rest)
    pose[1500, 0] += 0.5
    found = aligned(pose_time, pose, *rest)
    assert any("1 outliers dropped" in fault.what for fault in found.faults)
    np.testing.assert_allclose(found.runs[0].x, reference.runs[0].x, atol=2e-3)


def test_gaps_in_either_stream_split():
    pose_time, pose, command_time, command = logged()
    seen = (pose_time < 20) | (pose_time > 20.4)
    sent = (command_time < 40) | (command_time > 41)
    found = aligned(pose_time[seen], pose[seen], command_time[sent], command[sent])
    assert len(found.runs) == 3
    assert not any(start < 20.2 < end for start, end in spans(found))
    assert not any(start < 40.5 + LAG < end for start, end in spans(found))


def test_steps_in_commands_are_no_faults():
    time = np.arange(0, 50, 0.01)
    steps = np.where((time // 5) % 2, 1.0, 0.0)[:, None]
    stream = Stream(time, steps, ("v",), hold=True)
    assert stream.faults == () and stream.breaks() == []


def test_report_states_bandwidth_lag_and_faults(clean):
    text = clean.report()
    assert f"bandwidth {clean.bandwidth:.3g} s" in text
    assert f"lag {clean.lag:.2f} s" in text


def test_cuts_keep_states_commands_and_time_together(clean):
    (run,) = clean.runs
    part = run.cut(30, 40)
    assert part.x.shape == (41, 3) and part.u.shape == (40, 2)
    assert part.start == pytest.approx(run.start + 3.0)
    np.testing.assert_array_equal(part.samples("online").x, run.middle[30:70])
    np.testing.assert_array_equal(part.trajectory().x, run.x[30:71])
    with pytest.raises(ValueError, match="within the"):
        run.cut(run.T - 10, 11)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="one time per row and one name per column"):
        Stream(np.arange(20.0), np.zeros((20, 2)), NAMES)
