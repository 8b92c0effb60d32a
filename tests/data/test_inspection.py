"""What inspect says of a log, and that its suggestion can be pasted."""

import shlex

import numpy as np
import pytest
import tyro
from logfiles import BAGS, TABLES, drive, names, write

import offmap
from offmap.cli import Command, main
from offmap.data.inspection import inspect
from offmap.data.suggesting import cautions, suggestion


def pasted(line):
    """The dataset that a suggested command line reads."""
    command, *arguments = shlex.split(line)
    assert command == "offmap"
    fit = tyro.cli(Command, args=arguments)
    return offmap.read(
        fit.files,
        state=fit.state,
        control=fit.control,
        time=fit.time,
        time_unit=fit.time_unit,
        angles=fit.angles,
        traj=fit.traj,
        dt=fit.dt,
    )


def with_quaternion(spelling):
    """A drive whose heading is a quaternion, its components named by a pattern."""
    table = drive()
    half = table.pop("theta") / 2
    parts = {"x": 0 * half, "y": 0 * half, "z": np.sin(half), "w": np.cos(half)}
    return table | {spelling.format(letter): values for letter, values in parts.items()}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("spelling", "yaw"),
    [("q{}", "q.yaw"), ("pose.q.{}", "pose.q.yaw"), ("orientation_{}", "orientation.yaw")],
)
def test_tables_offer_the_angles_of_quaternions(tmp_path, kind, spelling, yaw):
    path = write(tmp_path, kind, with_quaternion(spelling))
    data = offmap.read(
        path, state=["px", "py", f"theta={yaw}"], control=["omega", "v"], angles=["theta"]
    )
    np.testing.assert_allclose(data.trajectories[0].x[:, 2], drive()["theta"], atol=1e-14)
    line = suggestion([str(path)], inspect(path))
    assert f"--state px py {yaw} --control omega v --angles {yaw}" in line
    assert pasted(line).dt == 0.1


def test_a_quaternion_need_not_be_of_length_one_but_has_a_length(tmp_path):
    table = with_quaternion("q{}")
    table |= {f"q{letter}": 3 * table[f"q{letter}"] for letter in "xyzw"}
    read = {"state": ["px", "theta=q.yaw"], "control": ["v"], "angles": ["theta"]}
    data = offmap.read(write(tmp_path, "csv", table), **read)
    np.testing.assert_allclose(data.trajectories[0].x[:, 1], drive()["theta"], atol=1e-14)
    for letter in "xyzw":
        table[f"q{letter}"][4] = 0.0
    with pytest.raises(ValueError, match=r"quaternion of length 1; row 4 has length 0"):
        offmap.read(write(tmp_path, "csv", table), **read)
    reports = inspect(write(tmp_path, "csv", table))  # and is then listed as what it is
    assert "q.yaw" not in [column.name for column in reports[0].columns]


@pytest.mark.parametrize("kind", BAGS)
def test_of_odometry_and_commands_the_pose_is_the_state(tmp_path, kind):
    path = write(tmp_path, kind, drive())
    reports = inspect(path)
    line = suggestion([str(path)], reports)
    pose = "/odom.pose.pose"
    assert (
        f"--state {pose}.position.x {pose}.position.y {pose}.orientation.yaw "
        f"--control /cmd_vel.linear.x /cmd_vel.angular.z --angles {pose}.orientation.yaw"
    ) in line
    looks = {c.name: c.looks for report in reports for c in report.columns}
    assert looks[f"{pose}.orientation.w"] == looks[f"{pose}.orientation.z"] == "quaternion"
    assert pasted(line).dt == 0.1


def test_measured_velocities_are_left_to_the_pose():
    from offmap.data.inspection import Column, StreamReport

    columns = [
        Column(name, 0.0, 1.0, 0, looks)
        for name, looks in (
            ("/odom.pose.pose.position.x", ""),
            ("/odom.twist.twist.linear.x", ""),
            ("/cmd_vel.linear.x", "control"),
        )
    ]
    report = StreamReport("/odom", 9, 10.0, 0, 0.0, 0, tuple(columns))
    assert "--state /odom.pose.pose.position.x --control" in suggestion(["a.bag"], [report])


@pytest.mark.parametrize(
    "name", ["pos x [m]", "a=b", "--px", "it's", "$HOME", "p;x", "größe", "px*", "-1"]
)
def test_suggestions_can_be_pasted_whatever_the_names(tmp_path, name):
    table = drive()
    table = {name if key == "px" else key: values for key, values in table.items()}
    path = write(tmp_path, "csv", table, "my log (1)")
    data = pasted(suggestion([str(path)], inspect(path)))
    assert data.n == 3
    np.testing.assert_array_equal(data.trajectories[0].x[:, 0], table[name])


def test_what_is_missing_is_said_and_not_made_up(tmp_path, capsys):
    table = drive()
    path = write(tmp_path, "csv", {name: table[name] for name in ("px", "py", "theta")})
    reports = inspect(path)
    assert "--control" not in suggestion([str(path)], reports)
    control, clock = cautions(reports)
    assert "no column looks like a control: add --control" in control
    assert "no column looks like a clock: add --dt" in clock
    main(["inspect", str(path)])
    assert capsys.readouterr().out.count("warning: ") == 2


def test_every_format_suggests_what_reads(tmp_path):
    for kind in TABLES:
        path = write(tmp_path, kind, drive(), kind.replace(".", "-"))
        data = pasted(suggestion([str(path)], inspect(path)))
        assert data.state_names == tuple(names(kind)["state"])


def test_a_heading_in_degrees_is_told(tmp_path):
    turning = np.arange(100) * 7.0
    path = write(tmp_path, "csv", drive(rows=100) | {"theta": turning % 360})
    reports = inspect(path)
    assert "--angles" not in suggestion([str(path)], reports)
    assert any("theta seems to be in degrees" in said for said in cautions(reports))
