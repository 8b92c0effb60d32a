"""What was logged is what is read, from every format, whatever the rates."""

import gzip
import warnings

import numpy as np
import pytest
from logfiles import BAG_CONTROL, BAG_STATE, BAGS, FORMATS, TABLES, drive, names, write, write_bag

import offmap
from offmap.data.formats import column_names, read_columns


def columns(table, *names):
    return np.stack([table[name] for name in names], axis=1)


def x_of(table):
    return columns(table, "px", "py", "theta")


def u_of(table):
    return columns(table, "omega", "v")


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_back_what_was_written(tmp_path, kind):
    table = drive()
    data = offmap.read(write(tmp_path, kind, table), angles=["theta"], **names(kind))
    assert data.state_names == ("px", "py", "theta")
    assert data.control_names == ("omega", "v")
    assert data.dt == 0.1
    (log,) = data
    # Text and binary tables are exact; yaw goes through a quaternion.
    tolerance = 1e-14 if kind in BAGS else 0
    np.testing.assert_allclose(log.x, x_of(table), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(log.u, u_of(table))


@pytest.mark.parametrize("kind", FORMATS)
def test_several_files_are_several_trajectories_in_order(tmp_path, kind):
    tables = [drive(rows=10 + 5 * k, seed=k) for k in range(3)]
    for k, table in enumerate(tables):
        write(tmp_path, kind, table, f"run{k}")
    pattern = "run*/*.mcap" if kind == "mcap" else "run*"
    data = offmap.read(str(tmp_path / pattern), angles=["theta"], source="online", **names(kind))
    assert [len(log.x) for log in data] == [10, 15, 20]
    assert data.sources == ("online",)
    np.testing.assert_array_equal(data.trajectories[2].u, u_of(tables[2]))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("labels", ["numbers", "words"])
def test_a_column_splits_a_file_into_runs(tmp_path, kind, labels):
    first, second = drive(rows=12), drive(rows=9, seed=1)
    table = {name: np.concatenate([first[name], second[name]]) for name in first}
    runs = (3, 7) if labels == "numbers" else ("slow", "fast")
    table["run"] = np.repeat(runs, [12, 9])
    data = offmap.read(write(tmp_path, kind, table), angles=["theta"], traj="run", **names(kind))
    assert [len(log.x) for log in data] == [12, 9]
    np.testing.assert_array_equal(data.trajectories[1].x, x_of(second))


@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_matrices_are_read_by_column_and_may_hold_one_control_less(tmp_path, kind):
    table = drive()
    stored = {"x": x_of(table), "u": u_of(table)[:-1]}
    data = offmap.read(
        write(tmp_path, kind, stored),
        state={"px": "x[0]", "py": "x[1]", "theta": "x[2]"},
        control=["omega=u[0]", "v=u[1]"],
        time=None,
        dt=0.1,
        angles=["theta"],
    )
    samples = data.samples()
    np.testing.assert_array_equal(samples.x, x_of(table)[:-1])
    np.testing.assert_array_equal(samples.u, u_of(table)[:-1])


def test_columns_may_be_anywhere_with_other_separators_blanks_and_units(tmp_path):
    table = drive()
    rows = ["note; v ;omega;theta; py;px;ms"]
    for k in range(30):
        cells = [table[name][k] for name in ("v", "omega", "theta", "py", "px")]
        rows.append("; ".join(["x", *map(repr, map(float, cells)), str(100 * k)]))
    (tmp_path / "log.csv").write_text("\n".join(rows))
    (log,) = offmap.read(
        tmp_path / "log.csv", time="ms", time_unit="ms", angles=["theta"], **names("csv")
    )
    np.testing.assert_array_equal(log.x, x_of(table))


def numbered(text):
    """A CSV file's lines as numpy writes them, or with remarks above, or with gaps."""
    header, *rows = text.splitlines()
    return {
        "numpy": "\n".join(["# " + header, *rows]),
        "numpy, blanks": "\n".join(["# made by hand", "# " + header, *rows]).replace(",", " "),
        "remarks": "\n".join(["# robot 3", "", "# made today", header, *rows]),
        "empty lines": "\n\n".join([header, *rows]) + "\n\n\n",
        "empty lines of Windows": "\r\n\r\n".join(["", header, *rows]),
    }


@pytest.mark.parametrize("how", numbered("a\n1"))
def test_remarks_marked_headers_and_empty_lines_are_no_rows(tmp_path, how):
    path = write(tmp_path, "csv", drive())
    path.write_bytes(numbered(path.read_text())[how].encode())
    (log,) = offmap.read(path, angles=["theta"], **names("csv"))
    np.testing.assert_array_equal(log.x, x_of(drive()))
    if how == "numpy":
        with gzip.open(tmp_path / "log.csv.gz", "wb") as file:
            file.write(path.read_bytes())
        (log,) = offmap.read(tmp_path / "log.csv.gz", angles=["theta"], **names("csv"))
        np.testing.assert_array_equal(log.u, u_of(drive()))


def test_numpys_own_table_is_read(tmp_path):
    table = drive()
    np.savetxt(tmp_path / "log.txt", np.stack([*table.values()], 1), header=" ".join(table))
    (log,) = offmap.read(tmp_path / "log.txt", angles=["theta"], **names("csv"))
    np.testing.assert_allclose(log.x, x_of(table), rtol=0, atol=1e-15)


def test_a_header_names_each_column_once(tmp_path):
    path = write(tmp_path, "csv", drive())
    path.write_text(path.read_text().replace("omega", "px", 1))
    with pytest.raises(ValueError, match=r"header names 'px' twice: give each column its own"):
        offmap.read(path, state=["px"], control=["v"])


@pytest.mark.parametrize("kind", TABLES)
def test_true_and_false_are_one_and_zero(tmp_path, kind):
    on = np.arange(30) % 3 > 0
    data = offmap.read(write(tmp_path, kind, drive() | {"v": on}), angles=["theta"], **names(kind))
    np.testing.assert_array_equal(data.trajectories[0].u[:, 1], on)


@pytest.mark.parametrize("kind", BAGS)
def test_streams_of_different_rates_meet_on_the_grid_of_the_states(tmp_path, kind):
    """Commands at other moments are held; poses at 10 Hz are taken as they are."""
    table = drive(rows=41)
    sent = np.sort(np.random.default_rng(0).uniform(-0.05, 3.9, 41))
    path = tmp_path / ("log" if kind == "ros2" else f"log.{kind}")
    written = write_bag(path, kind, table, control_times=sent)
    (log,) = offmap.read(written, state=BAG_STATE, control=BAG_CONTROL, angles=["theta"])
    first = int(np.ceil(max(sent[0], 0.0) / 0.1))
    for row, when in enumerate(0.1 * np.arange(first, first + len(log.x))):
        assert log.u[row, 0] == table["omega"][np.flatnonzero(sent <= when + 1e-9)[-1]]
    np.testing.assert_allclose(log.x, x_of(table)[first : first + len(log.x)], atol=1e-12)
    assert len(log.x) >= 37


def test_states_are_interpolated_where_rows_jitter_and_angles_go_the_short_way(tmp_path):
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.08, 0.12, 200))
    turning = np.arctan2(np.sin(3 * t), np.cos(3 * t))
    table = {"t": t, "p": 2 * t - 1, "angle": turning, "u": np.sign(np.sin(t))}
    (log,) = offmap.read(
        write(tmp_path, "csv", table), state=["p", "angle"], control=["u"], angles=["angle"], dt=0.1
    )
    grid = t[0] + 0.1 * np.arange(len(log.x))
    np.testing.assert_allclose(log.x[:, 0], 2 * grid - 1, atol=1e-12)  # a line stays a line
    off = log.x[:, 1] - 3 * grid
    np.testing.assert_allclose(np.arctan2(np.sin(off), np.cos(off)), 0, atol=1e-12)
    assert np.abs(log.x[:, 1]).max() <= np.pi


def test_a_pause_splits_a_trajectory_and_a_lost_row_does_not(tmp_path):
    table = drive(rows=40)
    kept = np.r_[0:7, 8:20, 30:40]
    path = write(tmp_path, "csv", {name: column[kept] for name, column in table.items()})
    data = offmap.read(path, angles=["theta"], **names("csv"))
    assert [len(log.x) for log in data] == [20, 10]
    np.testing.assert_array_equal(data.trajectories[1].x, x_of(table)[30:])
    np.testing.assert_allclose(
        data.trajectories[0].x[7, :2], x_of(table)[[6, 8], :2].mean(axis=0), atol=1e-12
    )
    (whole,) = offmap.read(path, angles=["theta"], max_gap=2.0, **names("csv"))
    assert len(whole.x) == 40


def test_header_stamps_replace_the_time_of_recording(tmp_path):
    table = drive(rows=20)
    bag = write_bag(tmp_path / "log.bag", "bag", table, skew=0.25)
    assert read_columns(bag, ["/odom.header.stamp.sec"])[0].time[0] == 0.0
    with pytest.raises(ValueError, match=r"/cmd_vel lacks .* or header.stamp"):
        offmap.read(bag, state=BAG_STATE, control=BAG_CONTROL, time="header.stamp")
    (log,) = offmap.read(
        bag,
        state=BAG_STATE,
        control={"speed": "/odom.twist.twist.linear.x"},
        time="header.stamp",
        angles=["theta"],
    )
    np.testing.assert_allclose(log.x[:, 0], table["px"], atol=1e-14)


def test_attitude_comes_out_of_quaternions_as_roll_pitch_yaw(tmp_path):
    bag = write_bag(tmp_path / "log.bag", "bag", drive(rows=5))
    known = column_names(bag)
    for angle in ("roll", "pitch", "yaw"):
        assert f"/odom.pose.pose.orientation.{angle}" in known
    from offmap.data.formats.derived import ANGLES

    rng = np.random.default_rng(0)
    for roll, pitch, yaw in rng.uniform([-3, -1.5, -3], [3, 1.5, 3], (50, 3)):
        halves = [(np.cos(a / 2), np.sin(a / 2)) for a in (roll, pitch, yaw)]
        (cr, sr), (cp, sp), (cy, sy) = halves
        w = cr * cp * cy + sr * sp * sy
        x = sr * cp * cy - cr * sp * sy
        y = cr * sp * cy + sr * cp * sy
        z = cr * cp * sy - sr * sp * cy
        found = [
            ANGLES[name](*(np.array([c]) for c in (x, y, z, w)))[0]
            for name in ("roll", "pitch", "yaw")
        ]
        np.testing.assert_allclose(found, [roll, pitch, yaw], atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": ["px", "py", "thetta"]}, "no column 'thetta'; did you mean 'theta'"),
        ({"control": ["omega", "V"]}, "no column 'V'; did you mean 'v'"),
        ({"control": ["throttle"]}, "it has 't', 'px'"),
        ({"time": "time"}, "no time column 'time'; did you mean 't'"),
        ({"time": None}, "give dt in seconds"),
        ({"traj": "rum"}, "no column 'rum'"),
        ({"angles": ["tehta"]}, "did you mean 'theta'"),
        ({"state": "px"}, r"Write \['px'\]"),
        ({"state": []}, "at least one column"),
        ({"state": ["px", "px"]}, "'px' twice"),
        ({"state": ["px", "py", "v"]}, "must all differ"),
        ({"dt": -1.0}, "positive, finite"),
        ({"time_unit": "minutes"}, "time_unit is one of"),
    ],
)
def test_wrong_arguments_say_what_was_meant(tmp_path, change, message):
    path = write(tmp_path, "csv", drive())
    arguments = {**names("csv"), "angles": ["theta"]} | change
    with pytest.raises(ValueError, match=message):
        offmap.read(path, **arguments)


def test_wrong_files_say_what_is_there(tmp_path):
    write(tmp_path, "csv", drive())
    (tmp_path / "log.xlsx").write_text("")
    for pattern, message in (
        ("lok.csv", "did you mean 'log.csv'"),
        ("nowhere/*.csv", "no folder"),
        ("log.xlsx", "A log is one of .csv"),
        (".", "A folder is read if it is a ROS 2 bag"),
    ):
        with pytest.raises(ValueError, match=message):
            offmap.read(tmp_path / pattern, **names("csv"))
    with pytest.raises(ValueError, match="at least one file"):
        offmap.read([], **names("csv"))


def test_runs_at_different_rates_need_a_step(tmp_path):
    paths = [
        write(tmp_path, "csv", drive(dt=0.1), "slow"),
        write(tmp_path, "csv", drive(dt=0.02, rows=100, seed=1), "fast"),
    ]
    with pytest.raises(ValueError, match=r"0\.02 s in .*fast.csv and 0\.1 s in .*slow.csv"):
        offmap.read(paths, angles=["theta"], **names("csv"))
    data = offmap.read(paths, angles=["theta"], dt=0.1, **names("csv"))
    assert [len(log.x) for log in data] == [30, 20]


def test_a_run_without_overlap_is_left_out_with_a_warning(tmp_path):
    good = write_bag(tmp_path / "a.bag", "bag", drive(rows=20))
    table = drive(rows=20, seed=1)
    late = write_bag(tmp_path / "b.bag", "bag", table, control_times=table["t"] + 100)
    arguments = {"state": BAG_STATE, "control": BAG_CONTROL, "angles": ["theta"]}
    with pytest.raises(ValueError, match=r"/odom from 0 to 1.9 s, /cmd_vel from 100 to 101.9 s"):
        offmap.read(late, **arguments)
    with pytest.warns(UserWarning, match=r"b\.bag .* left out"):
        assert len(offmap.read([good, late], **arguments)) == 1


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    import sys

    path = write(tmp_path, "csv", drive())
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"polars.*offmap\[logs\]"):
        offmap.read(path, **names("csv"))


def test_reading_a_dataset_warns_of_an_undeclared_angle(tmp_path):
    turning = np.arange(200) * 0.1
    wrapped = np.arctan2(np.sin(turning), np.cos(turning))
    path = write(tmp_path, "csv", drive(rows=200) | {"theta": wrapped})
    with pytest.warns(UserWarning, match="looks like a wrapped angle"):
        offmap.read(path, **names("csv"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        offmap.read(path, angles=["theta"], **names("csv"))
