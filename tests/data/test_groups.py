"""HDF5 groups: a run each, or parts of one run with clocks of their own."""

import h5py
import numpy as np
import pytest
from logfiles import CONTROL, STATE, drive

import offmap
from offmap.cli import main
from offmap.data.inspection import inspect
from offmap.data.reading import read_controls
from offmap.data.suggesting import suggestion

NAMES = {"state": STATE, "control": CONTROL, "angles": ["theta"]}


def write_groups(path, groups):
    """A file with datasets by full name, whatever their group."""
    with h5py.File(path, "w") as file:
        for group, table in groups.items():
            for name, column in table.items():
                file[f"{group}/{name}"] = column
    return path


@pytest.fixture
def runs(tmp_path):
    """Three runs of unequal length, each in a group, beside what is no run."""
    tables = {f"data/run{k}": drive(rows=12 + 3 * k, seed=k) for k in range(3)}
    path = write_groups(tmp_path / "log.h5", {**tables, "meta": {"gains": np.ones(4)}})
    return path, [*tables.values()]


def test_each_group_that_has_all_columns_is_a_run(runs):
    path, tables = runs
    data = offmap.read(path, **NAMES)
    assert [len(log.x) for log in data] == [12, 15, 18]
    for log, table in zip(data, tables, strict=True):
        np.testing.assert_array_equal(log.x, np.stack([table[n] for n in STATE], 1))
        np.testing.assert_array_equal(log.u, np.stack([table[n] for n in CONTROL], 1))


def test_a_full_name_reads_one_group(runs):
    path, tables = runs
    (log,) = offmap.read(
        path,
        state={name: f"data/run1/{name}" for name in STATE},
        control={name: f"data/run1/{name}" for name in CONTROL},
        angles=["theta"],
    )
    np.testing.assert_array_equal(log.x[:, 0], tables[1]["px"])


def test_nested_matrices_of_a_run_with_one_action_less(tmp_path):
    tables = [drive(rows=10 + k, seed=k) for k in range(2)]
    groups = {
        f"data/demo_{k}": {
            "obs/pose": np.stack([table[n] for n in STATE], 1),
            "actions": np.stack([table[n] for n in CONTROL], 1)[:-1],
        }
        for k, table in enumerate(tables)
    }
    data = offmap.read(
        write_groups(tmp_path / "demos.hdf5", groups),
        state=["px=obs/pose[0]", "py=obs/pose[1]", "theta=obs/pose[2]"],
        control=["omega=actions[0]", "v=actions[1]"],
        angles=["theta"],
        time=None,
        dt=0.1,
    )
    assert [len(log.x) for log in data] == [10, 11]
    np.testing.assert_array_equal(data.trajectories[1].x[:, 1], tables[1]["py"])
    np.testing.assert_array_equal(data.trajectories[1].u[:-1, 1], tables[1]["v"][:-1])


def test_groups_of_one_run_keep_their_own_clocks(tmp_path):
    """Poses at 10 Hz, commands at 25 Hz: each group has its `t`."""
    pose, command = drive(rows=31), drive(rows=80, dt=0.04, seed=1)
    groups = {
        "pose": {n: pose[n] for n in ("t", *STATE)},
        "cmd": {n: command[n] for n in ("t", *CONTROL)},
    }
    (log,) = offmap.read(
        write_groups(tmp_path / "log.h5", groups),
        state={n: f"pose/{n}" for n in STATE},
        control={n: f"cmd/{n}" for n in CONTROL},
        angles=["theta"],
    )
    np.testing.assert_array_equal(log.x[:, 0], pose["px"])
    held = [command["v"][np.flatnonzero(command["t"] <= t + 1e-9)[-1]] for t in pose["t"]]
    np.testing.assert_array_equal(log.u[:, 1], held)


def test_a_group_that_lacks_a_column_is_left_out_with_a_word(tmp_path):
    whole, part = drive(rows=12), drive(rows=12, seed=1)
    del part["v"]
    path = write_groups(tmp_path / "log.h5", {"a": whole, "b": part})
    with pytest.warns(UserWarning, match=r"log.h5, b has no column 'v': it is left out"):
        data = offmap.read(path, **NAMES)
    assert len(data) == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({**NAMES, "state": ["px", "pz"]}, "no column 'px'; did you mean 'data/run"),
        ({**NAMES, "time": "stamp"}, "no time column 'stamp'"),
        ({**NAMES, "traj": "run"}, "no column 'run'"),
    ],
)
def test_wrong_names_are_answered_with_those_of_the_groups(runs, names, message):
    with pytest.raises(ValueError, match=message):
        offmap.read(runs[0], **names)


def test_inspect_lists_groups_and_suggests_what_reads_them(runs, capsys):
    path, _ = runs
    reports = inspect(path)
    assert [(r.name, r.rows) for r in reports[:3]] == [
        ("data/run0", 12),
        ("data/run1", 15),
        ("data/run2", 18),
    ]
    assert all(report.rate == pytest.approx(10) for report in reports[:3])
    main(["inspect", str(path)])
    line = capsys.readouterr().out.splitlines()[-1]
    assert "--state px py theta --control omega v --angles theta --time t" in line


def test_inspect_suggests_full_names_where_groups_differ(tmp_path):
    pose, command = drive(rows=31), drive(rows=80, dt=0.04, seed=1)
    groups = {
        "pose": {n: pose[n] for n in ("t", *STATE)},
        "cmd": {n: command[n] for n in ("t", *CONTROL)},
    }
    line = suggestion(["log.h5"], inspect(write_groups(tmp_path / "log.h5", groups)))
    assert "--state pose/px pose/py pose/theta --control cmd/omega cmd/v" in line
    assert line.endswith("--angles pose/theta --time t")


def test_controls_of_a_rollout_come_from_one_group(runs):
    path, tables = runs
    with pytest.raises(ValueError, match=r"follows one run; .* holds 3. Name the columns of one"):
        read_controls(path, CONTROL, dt=0.1)
    named = {name: f"data/run2/{name}" for name in CONTROL}
    held = read_controls(path, named, dt=0.1)
    np.testing.assert_array_equal(held[:, 1], tables[2]["v"])
