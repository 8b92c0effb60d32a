"""Every way of writing the time gives the same seconds, and none is guessed."""

import datetime

import h5py
import numpy as np
import polars as pl
import pytest
from logfiles import drive, names, write

import offmap
from offmap.data.inspection import inspect
from offmap.data.reading import read_controls
from offmap.data.suggesting import cautions, suggestion

FIRST = datetime.datetime(2024, 1, 1, 23, 59, 59)
CSV = names("csv")


def moments(table, zone=None):
    return [
        FIRST.replace(tzinfo=zone) + datetime.timedelta(seconds=round(float(t), 9))
        for t in table["t"]
    ]


def dated(folder, how):
    """A log whose time is a date of some kind."""
    table = drive()
    if how == "text":
        return write(folder, "csv", table | {"t": [m.isoformat() for m in moments(table)]})
    if how == "text with a zone":
        zone = datetime.timezone(datetime.timedelta(hours=-5))
        return write(folder, "csv", table | {"t": [m.isoformat() for m in moments(table, zone)]})
    if how == "text with blanks":
        return write(folder, "csv", table | {"t": [str(m) for m in moments(table)]})
    if how == "bytes":
        text = np.array([m.isoformat() for m in moments(table)])
        return write(folder, "h5", table | {"t": text})
    if how == "datetime64":
        return write(folder, "npz", table | {"t": np.array(moments(table), "datetime64[us]")})
    path = folder / "log.parquet"
    columns = {
        "datetime": pl.Series(moments(table), dtype=pl.Datetime("us")),
        "datetime with a zone": pl.Series(moments(table)).dt.replace_time_zone("Europe/Berlin"),
        "duration": pl.Series([m - FIRST for m in moments(table)], dtype=pl.Duration("ms")),
    }
    pl.DataFrame(table | {"t": columns[how]}).write_parquet(path)
    return path


DATES = ("text", "text with a zone", "text with blanks", "bytes", "datetime64")
DATES += ("datetime", "datetime with a zone", "duration")


@pytest.mark.parametrize("how", DATES)
def test_dates_are_read_as_seconds(tmp_path, how):
    path, table = dated(tmp_path, how), drive()
    data = offmap.read(path, angles=["theta"], **CSV)
    assert data.dt == 0.1
    np.testing.assert_array_equal(data.trajectories[0].x[:, 0], table["px"])
    (report,) = inspect(path)
    assert (report.clock, report.unit) == ("t", None)
    assert report.rate == pytest.approx(10)
    assert suggestion(["log"], [report]).endswith("--angles theta --time t")


def test_seconds_beside_nanoseconds_are_a_clock(tmp_path):
    table = drive()
    counted = 1_700_000_000_900_000_000 + np.round(1e9 * table.pop("t")).astype(np.int64)
    split = {"stamp.sec": counted // 10**9, "stamp.nanosec": counted % 10**9}
    path = write(tmp_path, "csv", split | table)
    data = offmap.read(path, time="stamp.sec+nanosec", angles=["theta"], **CSV)
    assert (data.dt, len(data.trajectories[0].x)) == (0.1, 30)
    line = suggestion(["log.csv"], inspect(path))
    assert line.endswith(
        "--state px py theta --control omega v --angles theta --time stamp.sec+nanosec"
    )


def test_what_only_happens_to_grow_is_no_clock(tmp_path):
    """Forward at a constant speed, or a bit more each row: still a place."""
    rows = np.arange(30.0)
    table = drive() | {"px": 0.1 * rows, "creep": rows + 0.3 * np.sin(rows), "k": rows}
    del table["t"]
    reports = inspect(write(tmp_path, "csv", table))
    assert reports[0].clock is None
    assert reports[0].rate is None
    assert "--state px py theta creep " in suggestion(["log.csv"], reports)
    assert any("no column looks like a clock" in said for said in cautions(reports))
    np.savez(tmp_path / "log.npz", x=np.c_[rows, rows], u=np.c_[rows])
    reports = inspect(tmp_path / "log.npz")
    assert "--time None" in suggestion(["log.npz"], reports)
    (ticking,) = inspect(write(tmp_path, "csv", table | {"uptime": 5 + 0.02 * rows}, "ticks"))
    assert ticking.clock == "uptime"
    assert ticking.rate == pytest.approx(50)


def test_text_that_is_no_date_is_refused_and_told(tmp_path):
    path = write(tmp_path, "csv", drive() | {"t": ["noon"] * 30})
    with pytest.raises(ValueError, match=r"time must hold numbers or dates .* row 0 holds 'noon'"):
        offmap.read(path, **CSV)
    reports = inspect(path)
    assert reports[0].clock is None
    assert any(said.startswith("t is neither numbers nor dates") for said in cautions(reports))


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
@pytest.mark.parametrize("since", [0, 1_700_000_000])
@pytest.mark.parametrize("dt", [0.1, 0.005])
def test_the_unit_of_whole_numbers_is_asked_for_and_suggested(tmp_path, unit, scale, since, dt):
    table = drive(dt=dt)
    if unit == "s":
        dt, table = 2.0, drive(dt=2.0)
    stamps = np.round(scale * table["t"]).astype(np.int64) + int(scale) * since
    path = write(tmp_path, "csv", table | {"t": stamps})
    with pytest.raises(ValueError, match=r"s apart. Give time_unit .*\(--time-unit\)"):
        offmap.read(path, dt=0.1, **CSV)
    assert offmap.read(path, time_unit=unit, angles=["theta"], **CSV).dt == pytest.approx(dt)
    if unit != "s" or since:  # counts from 0 in steps of 2 might be anything
        assert suggestion(["log"], inspect(path)).endswith(f"--time t --time-unit {unit}")


@pytest.mark.parametrize("dt", [0.1, 1 / 120, 0.001])
def test_seconds_since_1970_give_the_step_that_was_meant(tmp_path, dt):
    """Numbers of 1.7e9 s have steps that are off by up to 2e-7 s each."""
    table = drive(rows=2000, dt=dt)
    path = write(tmp_path, "npz", table | {"t": 1_700_000_000.25 + table["t"]})
    data = offmap.read(path, angles=["theta"], **CSV)
    assert data.dt == pytest.approx(dt, rel=1e-6)
    np.testing.assert_array_equal(data.trajectories[0].x[:, 0], table["px"])


def test_parts_of_a_run_keep_their_distance_in_time(tmp_path):
    """Counted from the first stamp of all, not each from its own."""
    table, begin = drive(rows=40), 1_700_000_000_000_000_000
    stamps = begin + np.round(1e9 * table["t"]).astype(np.int64)
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name in ("px", "py", "theta"):
            file[f"pose/{name}"] = table[name]
        file["pose/t"] = stamps
        for name in ("omega", "v"):
            file[f"cmd/{name}"] = table[name][10:]
        file["cmd/t"] = stamps[10:]
    (log,) = offmap.read(
        tmp_path / "log.h5",
        state={name: f"pose/{name}" for name in ("px", "py", "theta")},
        control={name: f"cmd/{name}" for name in ("omega", "v")},
        angles=["theta"],
        time_unit="ns",
    )
    np.testing.assert_array_equal(log.x[:, 0], table["px"][10:])
    np.testing.assert_array_equal(log.u[:, 0], table["omega"][10:])


@pytest.mark.parametrize("fault", [{"t": np.round(1e9 * drive()["t"]) + 0.5}, {"dt": 1e-10}])
def test_no_step_makes_a_log_a_giant(tmp_path, fault):
    """Three seconds read as nanoseconds would be 2e10 rows."""
    table = drive()
    path = write(tmp_path, "csv", table | ({"t": fault["t"]} if "t" in fault else {}))
    with pytest.raises(ValueError, match=r"rows that last .* Check dt, and the unit .*time_unit"):
        offmap.read(path, dt=fault.get("dt", 0.1), time_unit="s", **CSV)
    if "t" in fault:
        with pytest.raises(ValueError, match=r"would become 2.9e\+10 with a step of 0.1 s"):
            read_controls(path, ["omega", "v"], dt=0.1, time_unit="s")


def test_a_short_plan_may_be_held_for_long(tmp_path):
    (tmp_path / "plan.csv").write_text("t,u\n0,1\n12,2\n")
    held = read_controls(tmp_path / "plan.csv", ["u"], dt=0.001)
    assert [int(np.sum(held == level)) for level in (1, 2)] == [12000, 1]


def test_controls_of_a_rollout_have_units_and_runs(tmp_path):
    first, second = drive(rows=32), drive(rows=9, seed=1)
    table = {name: np.concatenate([first[name], second[name]]) for name in first}
    table |= {"t": np.round(1e3 * table["t"]).astype(int), "run": np.repeat([3, 7], [32, 9])}
    path = write(tmp_path, "csv", table)
    with pytest.raises(ValueError, match="Give time_unit"):
        read_controls(path, ["v"], dt=0.1, traj="run=7")
    with pytest.raises(ValueError, match=r"holds run = 3, 7. Name one of them: traj='run=3'"):
        read_controls(path, ["v"], dt=0.1, time_unit="ms", traj="run")
    with pytest.raises(ValueError, match="holds run = 3, 7"):
        read_controls(path, ["v"], dt=0.1, time_unit="ms", traj="run=5")
    held = read_controls(path, ["v"], dt=0.1, time_unit="ms", traj="run=7")
    np.testing.assert_array_equal(held[:, 0], second["v"])
    write(tmp_path, "csv", first, "other")
    with pytest.raises(ValueError, match=r"matches 2 files. Name one, such as"):
        read_controls(tmp_path / "*.csv", ["v"], dt=0.1)
