"""Reading and cutting recordings: files as MRCLAM writes them, of a robot we know."""

import gzip
from itertools import pairwise

import numpy as np
import pytest

from offmap.paper.car import choose_files, read_dart
from offmap.paper.recordings import STEPS, cut_roles, describe, read_mrclam

LAG = 0.2


def write_mrclam(folder, name="MRCLAM9_Robot3", seconds=600.0, seed=0):
    """A unicycle that wanders around the origin, always driven, commands 0.2 s ahead of motion."""
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, seconds, 0.02)
    # Turn rates that change every two seconds, and a pull back towards the middle.
    px, py, theta = 0.5, 0.5, 0.0
    pose, command = np.empty((len(time), 3)), np.empty((len(time), 2))
    held = np.zeros(2)
    for i in range(len(time)):
        if i % 100 == 0:
            home = np.arctan2(-py, -px) - theta
            pull = 0.5 * np.sin(home) * (np.hypot(px, py) > 1.0)
            held = np.array([np.clip(rng.uniform(-0.5, 0.5) + pull, -0.6, 0.6), 0.07])
        command[i] = held
        omega, v = command[max(i - 10, 0)]
        pose[i] = px, py, theta
        px, py, theta = (
            px + 0.02 * v * np.cos(theta),
            py + 0.02 * v * np.sin(theta),
            theta + 0.02 * omega,
        )
    pose = pose + [4e-4, 4e-4, 2e-3] * rng.normal(size=pose.shape)
    pose[:, 2] = (pose[:, 2] + np.pi) % (2 * np.pi) - np.pi
    for kind, table in (("Groundtruth", pose), ("Odometry", command[:, ::-1])):
        clock = 1e9 + time
        with gzip.open(folder / f"{name}_{kind}.dat.gz", "wt") as file:
            file.write("# header\n")
            np.savetxt(file, np.column_stack([clock, table]), fmt="%.6f")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mrclam")
    write_mrclam(folder)
    return folder


@pytest.fixture(scope="module")
def recordings(folder):
    return read_mrclam(folder)


def test_files_are_found_and_the_lag_is_read_off(recordings):
    robot, (recording,) = recordings
    assert robot == "Robot3"
    assert recording.aligned.lag == pytest.approx(LAG, abs=0.03)
    assert recording.calibrated_until == pytest.approx(120.0, abs=1.0)


def test_roles_have_their_regions_and_never_overlap(recordings):
    _, found = recordings
    cut = cut_roles(found, seed=0)
    for window in (*cut.offline, *cut.inside):
        assert window.x[0, 1] < 0 and -0.6 <= window.x[0, 2] <= 0.8
    for window in cut.outside:
        assert window.x[0, 1] >= 0 and not -1.5 <= window.x[0, 2] <= 1.7
    for pair in cut.pairs:
        assert pair.T == 2 * STEPS
        assert pair.x[0, 1] >= 0 and -1.5 <= pair.x[0, 2] <= 1.7
    every = [*cut.offline, *cut.inside, *cut.pairs, *cut.outside]
    spans = sorted((window.start, window.start + window.T * window.dt) for window in every)
    assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(spans))


def test_no_test_lies_where_choices_were_made(recordings):
    _, found = recordings
    cut = cut_roles(found, seed=1)
    for window in (*cut.inside, *cut.pairs, *cut.outside):
        assert window.start >= found[0].calibrated_until


def test_the_cut_is_described(recordings):
    robot, found = recordings
    cut = cut_roles(found, seed=0)
    about = describe(robot, found, cut)
    assert f"{len(cut.outside)} OOD tests" in about["read"][0]
    assert "lag" in about["read"][1]


def test_history_leaves_the_motion_alone(recordings):
    _, found = recordings
    cut = cut_roles(found, seed=0, history=2)
    window = cut.offline[0]
    assert window.u.shape == (STEPS, 6)
    np.testing.assert_array_equal(window.u[1:, 2:4], window.u[:-1, :2])


def test_too_short_a_recording_says_what_is_missing(tmp_path):
    write_mrclam(tmp_path, seconds=60.0)
    _, found = read_mrclam(tmp_path)
    with pytest.raises(ValueError, match=r"needs 4 offline windows .* the recordings give"):
        cut_roles(found, seed=0)


def resampled(folder, recording, lost):
    """The recording as a table of every fifth row, some of which say that they do not hold."""
    tables = []
    for kind in ("Groundtruth", "Odometry"):
        with gzip.open(folder / f"{recording}_{kind}.dat.gz", "rt") as file:
            tables.append(np.loadtxt(file)[::5])
    pose, odometry = tables
    time = pose[:, 0] - pose[0, 0]
    theta = np.unwrap(pose[:, 3])
    valid = ~((time >= lost[0]) & (time < lost[1]))
    x = np.where(valid[:, None], np.column_stack([pose[:, 1:3], theta]), np.nan)
    return np.column_stack([time, x, odometry[:, 2], odometry[:, 1], valid])


def test_tables_on_a_grid_are_read_where_there_are_no_raw_files(folder, tmp_path):
    header = "# t0\nt_s,px_m,py_m,theta_rad_unwrapped,omega_cmd,v_cmd,valid"
    table = resampled(folder, "MRCLAM9_Robot3", lost=(300.0, 305.0))
    np.savetxt(tmp_path / "MRCLAM9_Robot3.csv", table, "%.6f", ",", header=header, comments="")
    robot, (recording,) = read_mrclam(tmp_path)
    assert robot == "Robot3"
    assert recording.aligned.lag == pytest.approx(LAG, abs=0.06)
    spans = [(run.start, run.start + run.T * run.dt) for run in recording.aligned.runs]
    assert not any(start < 304.0 and end > 301.0 for start, end in spans)
    assert cut_roles([recording], seed=0).outside
    (tmp_path / "MRCLAM9_Robot3.csv").write_text("t_s,px_m,valid\n0,1,1\n")
    with pytest.raises(ValueError, match=r"MRCLAM9_Robot3\.csv lacks py_m, theta_rad_unwrapped"):
        read_mrclam(tmp_path)


def test_wrong_folders_robots_and_files_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="has none; check the folder"):
        read_mrclam(tmp_path)
    with pytest.raises(ValueError, match="recordings of Robot3; received 'Robot7'"):
        read_mrclam(folder, "Robot7")
    (tmp_path / "Robot1_Groundtruth.dat").write_text("1 2 3 4\n" * 50)
    with pytest.raises(ValueError, match=r"Robot1_Odometry\.dat is missing"):
        read_mrclam(tmp_path)
    (tmp_path / "Robot1_Odometry.dat").write_text("1 2 x\n")
    with pytest.raises(ValueError, match=r"Robot1_Odometry\.dat must hold 3 numbers a line"):
        read_mrclam(tmp_path)


def test_car_files_are_chosen_by_kind_and_never_for_their_results(tmp_path):
    for name in ("free_2024_a", "free_2024_b", "steer_2024_a", "drift_2024_a"):
        (tmp_path / f"{name}.csv").write_text("throttle,steering\n0,0\n")
    train, test = choose_files(tmp_path, "free_2024_a")
    assert [path.stem for path in train] == ["free_2024_b", "steer_2024_a"]
    assert test.stem == "free_2024_a"
    with pytest.raises(ValueError, match="names of 2 of"):
        choose_files(tmp_path, "free")
    with pytest.raises(ValueError, match=r"lacks \['vicon time'"):
        read_dart(test)
