"""Tables whose columns tick at different rates, and arrays that are read only where needed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from logfiles import TABLES, drive, names, write

import offmap
from offmap.data.formats import column_names
from offmap.data.inspection import inspect
from offmap.data.suggesting import suggestion

CSV = names("csv")
READ = {"angles": ["theta"], **CSV}


def commanded_every(table, steps):
    """The table with commands in every so many rows, and what is held between them."""
    rows = np.arange(len(table["t"]))
    sparse = {n: np.where(rows % steps == 0, table[n], np.nan) for n in ("omega", "v")}
    held = np.stack([table[n][rows - rows % steps] for n in ("omega", "v")], axis=1)
    return table | sparse, held


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("steps", [2, 3, 10])
def test_empty_cells_mean_another_rate(tmp_path, kind, steps):
    table = drive(rows=60)
    sparse, held = commanded_every(table, steps)
    (log,) = offmap.read(write(tmp_path, kind, sparse), **READ)
    np.testing.assert_array_equal(log.x[:, 0], table["px"][: len(log.x)])
    np.testing.assert_array_equal(log.u, held[: len(log.u)])
    assert len(log.x) == 60


def test_rows_of_two_sensors_may_alternate(tmp_path):
    """An outer join: each row holds a pose or a command, never both."""
    table = drive(rows=40)
    command = {"t": table["t"][::4] + 0.03} | {n: table[n][::4] for n in ("omega", "v")}
    both = np.argsort(np.r_[table["t"], command["t"]])
    joined = {
        name: np.r_[
            table[name] if name in ("t", "px", "py", "theta") else np.full(40, np.nan),
            command.get(name, np.full(10, np.nan)),
        ][both]
        for name in table
    }
    (log,) = offmap.read(write(tmp_path, "csv", joined), **READ)
    grid = np.arange(1, 1 + len(log.x))  # the first pose comes before the first command
    on_grid = 0.03 + 0.1 * np.arange(len(log.x))
    np.testing.assert_allclose(log.x[:, 0], np.interp(on_grid, table["t"], table["px"]))
    np.testing.assert_array_equal(log.u[:, 1], table["v"][::4][(grid - 1) // 4])


def test_a_stray_empty_cell_is_still_refused(tmp_path):
    sparse, _ = commanded_every(drive(rows=60), 3)
    for column, row in (("px", 7), ("px", 6), ("v", 3)):
        broken = {name: values.copy() for name, values in sparse.items()}
        broken[column][row] = np.nan
        if column == "v":  # one command more or less is what another rate is
            offmap.read(write(tmp_path, "csv", broken), **READ)
            continue
        with pytest.raises(ValueError, match=rf"in 'px', first in row {row} of 60"):
            offmap.read(write(tmp_path, "csv", broken), **READ)


@pytest.mark.parametrize("share", [0.3, 0.45, 0.6])
def test_a_sensor_that_failed_halfway_is_no_other_rate(tmp_path, share):
    table = drive(rows=60)
    table["px"][int(share * 60) :] = np.nan
    with pytest.raises(ValueError, match="missing, NaN or infinite values in 'px'"):
        offmap.read(write(tmp_path, "csv", table), **READ)


@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_arrays_of_two_lengths_have_two_clocks(tmp_path, kind):
    table = drive(rows=41)
    stored = {name: table[name] for name in ("t", "px", "py", "theta")}
    stored |= {"t_cmd": table["t"][::2], "omega": table["omega"][::2], "v": table["v"][::2]}
    path = write(tmp_path, kind, stored)
    (log,) = offmap.read(path, **READ)
    np.testing.assert_array_equal(log.x[:, 0], table["px"])
    np.testing.assert_array_equal(log.u[:, 1], np.repeat(table["v"][::2], 2)[:41])
    assert [report.rows for report in inspect(path)] == [41, 21]
    assert suggestion(["log"], inspect(path)).endswith("omega v --angles theta --time t")


@pytest.mark.slow
def test_logs_of_some_size_are_read_fast_and_in_little_memory(tmp_path):
    """What 100 MB may take in 10 s, a fifth of it takes in 2 s of the processor."""
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "read.py"
    command = [sys.executable, str(script), "--mb", "20", "--out", str(tmp_path / "read.json")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    found = json.loads((tmp_path / "read.json").read_text("utf-8"))
    assert len(found) == 8
    assert {kind for kind, row in found.items() if row["processor_seconds"] > 2} == set()
    assert {kind for kind, row in found.items() if row["added_mb"] > 100 + 5 * row["mb"]} == set()


def test_an_npz_file_is_read_member_by_member(tmp_path, monkeypatch):
    """Pictures and pickles beside the log cost nothing and break nothing."""
    table = drive()
    np.savez_compressed(
        tmp_path / "log.npz",
        camera=np.zeros((30, 480, 640), np.uint8),
        meta=np.array({"robot": 1}, dtype=object),
        **table,
    )
    assert "meta" not in column_names(tmp_path / "log.npz")
    fetched = []
    fetch = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(
        np.lib.npyio.NpzFile, "__getitem__", lambda s, k: fetched.append(k) or fetch(s, k)
    )
    (log,) = offmap.read(tmp_path / "log.npz", **READ)
    np.testing.assert_array_equal(log.x[:, 0], table["px"])
    assert {*fetched} == {*table}
    with pytest.raises(ValueError, match="no column 'meta'"):
        offmap.read(tmp_path / "log.npz", state=["meta"], control=["v"])
