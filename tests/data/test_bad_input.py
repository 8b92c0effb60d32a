"""Broken logs of every format: one clear line, exit code 2, and nothing is left behind."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfiles import BAGS, FORMATS, TABLES, as_csv, drive, names, write, write_bag

import offmap
from offmap.cli import main


def with_value(column, row, value):
    table = drive()
    table[column] = np.asarray(table[column]).copy()
    table[column][row] = value
    return table


def swapped_rows():
    order = np.r_[0:10, 12, 11, 10, 13:30]
    return {name: column[order] for name, column in drive().items()}


def repeated_stamp():
    table = drive()
    return table | {"t": np.where(np.arange(30) == 11, table["t"][10], table["t"])}


TABLE_FAULTS = {
    "NaN": (lambda: with_value("px", 7, np.nan), "NaN or infinite values in '.*', first in row 7"),
    "inf": (lambda: with_value("v", 3, np.inf), "NaN or infinite values in '.*', first in row 3"),
    "huge": (lambda: with_value("py", 5, 3.4e38), "must hold measurements; .* row 5"),
    "one row": (lambda: drive(rows=1), "at least 2 rows; .* has 1"),
    "constant column": (lambda: drive() | {"v": np.ones(30)}, "must vary; received constant 'v'"),
    "few rows": (lambda: drive(rows=4), "a fit needs at least 7 samples"),
}
CLOCK_FAULTS = {
    "duplicate time stamps": (repeated_stamp, "row 11 repeats the time of the row before"),
    "unsorted": (swapped_rows, "goes back in time .* Sort the rows"),
    "wrong units": (
        lambda: drive() | {"t": 1e9 * drive()["t"]},
        r"would be 1e\+08 s apart. Give time_unit",
    ),
    "no rows": (
        lambda: {name: column[:0] for name, column in drive().items()},
        "at least 2 rows; .* has 0",
    ),
    "NaN in time": (lambda: with_value("t", 4, np.nan), "values in 'time', first in row 4"),
    "text": (
        lambda: drive() | {"px": np.array(["1.5"] * 9 + ["n/k"] * 21)},
        r"'px' must hold numbers|'px'.*dtype",
    ),
}


def refused(capsys, tmp_path, files, kind, *further, state=None):
    """The one line with which `offmap fit` answers, having written nothing."""
    columns = names(kind)
    mapped = [
        [f"{name}={c}" for name, c in part.items()] if isinstance(part, dict) else part
        for part in columns.values()
    ]
    out = tmp_path / "out" / "robot.offmap"
    arguments = ["fit", *map(str, files), "--state", *(state or mapped[0]), "--control", *mapped[1]]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--angles", "theta", "--out", str(out), *further])
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert stopped.value.code == 2
    assert "Traceback" not in text
    lines = [line for line in printed.out.splitlines() if line.startswith("offmap: ")]
    assert len(lines) == 1
    assert printed.out.rstrip().endswith(lines[0])  # one line, and the last
    assert not out.parent.exists()
    return lines[0]


@pytest.mark.parametrize("fault", TABLE_FAULTS)
@pytest.mark.parametrize("kind", FORMATS)
def test_values_that_are_no_measurements(tmp_path, capsys, kind, fault):
    make, message = TABLE_FAULTS[fault]
    assert_matches(message, refused(capsys, tmp_path, [write(tmp_path, kind, make())], kind))


@pytest.mark.parametrize("fault", CLOCK_FAULTS)
@pytest.mark.parametrize("kind", TABLES)
def test_tables_with_a_broken_clock_or_wrong_types(tmp_path, capsys, kind, fault):
    make, message = CLOCK_FAULTS[fault]
    assert_matches(message, refused(capsys, tmp_path, [write(tmp_path, kind, make())], kind))


@pytest.mark.parametrize("kind", BAGS)
def test_bags_with_a_repeated_stamp_or_a_field_that_is_text(tmp_path, capsys, kind):
    repeated = write(tmp_path, kind, repeated_stamp(), "repeated")
    assert_matches("row 11 repeats the time", refused(capsys, tmp_path, [repeated], kind))
    line = refused(capsys, tmp_path, [repeated], kind, state=["frame=/odom.header.frame_id"])
    assert_matches("no column '/odom.header.frame_id'; did you mean", line)


@pytest.mark.parametrize("kind", FORMATS)
def test_wrong_names_and_mixed_rates(tmp_path, capsys, kind):
    slow = write(tmp_path, kind, drive(), "slow")
    wrong = "/odom.pose.position.x" if kind in BAGS else "pos_x"
    line = refused(capsys, tmp_path, [slow], kind, state=[wrong])
    assert_matches(f"no column '{wrong}'; (did you mean|it has)", line)
    fast = write(tmp_path, kind, drive(dt=0.02, seed=1), "fast")
    assert_matches("different rates", refused(capsys, tmp_path, [slow, fast], kind))


def inside(path):
    """The file that holds the data: that in the folder of a ROS 2 bag."""
    return next(path.glob("*.db3")) if path.is_dir() else path


def broken(file, content):
    """Put something else into a file."""
    whole = file.read_bytes()
    file.write_bytes(
        {
            "truncated": whole[: int(0.62 * len(whole))],
            "no bytes": b"",
            "zeros": bytes(len(whole)),
            "another format": b"%PDF-1.7 binary \x00\xff\xfe" * 40,
        }[content]
    )


@pytest.mark.parametrize("content", ["truncated", "no bytes", "zeros", "another format"])
@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_are_not_what_they_say(tmp_path, capsys, kind, content):
    path = write(tmp_path, kind, drive())
    broken(inside(path), content)
    line = refused(capsys, tmp_path, [path], kind)
    assert str(path) in line
    assert len(line) < 600


@pytest.mark.parametrize("kind", BAGS)
def test_a_bag_without_messages(tmp_path, capsys, kind):
    empty = {name: column[:0] for name, column in drive().items()}
    path = write(tmp_path, kind, empty)
    assert_matches("it holds no messages", refused(capsys, tmp_path, [path], kind))
    assert_matches("it holds no messages", answer(capsys, "inspect", path))


@pytest.mark.parametrize("kind", BAGS)
def test_a_topic_without_messages(tmp_path, capsys, kind):
    table = drive()
    silent = table | {"v": table["v"][:0], "omega": table["omega"][:0]}
    path = tmp_path / ("log" if kind == "ros2" else f"log.{kind}")
    path = write_bag(path, kind, silent, control_times=[])
    assert_matches("no column '/cmd_vel.angular.z'", refused(capsys, tmp_path, [path], kind))


@pytest.mark.parametrize("kind", BAGS)
def test_header_stamps_that_are_not_in_order(tmp_path, capsys, kind):
    """Messages arrive in order, but say that they were not measured so."""
    late = np.where(np.arange(30) % 7 == 3, 0.35, 0.0)
    path = tmp_path / ("log" if kind == "ros2" else f"log.{kind}")
    path = write_bag(path, kind, drive(), skew=late)
    mapped = ["x=/odom.pose.pose.position.x", "u=/odom.pose.pose.position.y"]
    line = answer(
        capsys, "fit", path, "--state", mapped[0], "--control", mapped[1], "--time", "header.stamp"
    )
    assert_matches("row 3 goes back in time", line)


def answer(capsys, command, *arguments):
    """The one line with which a command gives up."""
    with pytest.raises(SystemExit) as stopped:
        main([command, *map(str, arguments)])
    printed = capsys.readouterr()
    assert stopped.value.code == 2
    assert "Traceback" not in printed.out + printed.err
    assert printed.out.splitlines()[-1].startswith("offmap: ")
    return printed.out.splitlines()[-1]


@pytest.mark.parametrize("content", ["truncated", "no bytes", "zeros", "another format"])
@pytest.mark.parametrize("kind", FORMATS)
def test_inspect_refuses_broken_files(tmp_path, capsys, kind, content):
    path = write(tmp_path, kind, drive())
    broken(inside(path), content)
    out = tmp_path / "numbers.json"
    if (kind, content) == ("csv", "truncated"):  # cut within a number
        inside(path).write_text(as_csv(drive())[:-50])
    assert str(path) in answer(capsys, "inspect", path, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("command", ["rollout", "report"])
@pytest.mark.parametrize("content", ["no bytes", "zeros", "another format", "missing"])
def test_commands_refuse_files_that_are_no_model(tmp_path, capsys, command, content):
    model, out = tmp_path / "robot.offmap", tmp_path / "new" / "out"
    if content != "missing":
        model.write_bytes(bytes(400))
        broken(model, content)
    further = ["--start", "0", "--controls", "c.csv"] if command == "rollout" else []
    assert str(model) in answer(capsys, command, model, *further, "--out", out)
    assert not out.parent.exists()


def test_a_target_that_cannot_be_written_is_noticed_first(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for command, further in (
        ("fit", ["--state", "px", "--control", "v"]),
        ("inspect", []),
        ("report", []),
        ("rollout", ["--start", "0", "--controls", "c.csv"]),
    ):
        out = tmp_path / "file" / "out.offmap"
        line = answer(capsys, command, tmp_path / "no.csv", *further, "--out", out)
        assert_matches("--out is a file that can be written", line)


def test_a_line_cut_in_the_middle_of_a_number_is_noticed(tmp_path, capsys):
    path = tmp_path / "log.csv"
    text = as_csv(drive())
    end = text.rstrip().rindex("\n") + 25  # within the third of six numbers
    path.write_text(text[:end])
    assert_matches("last line is cut short", refused(capsys, tmp_path, [path], "csv"))


def test_a_missing_file_and_a_folder_as_target(tmp_path, capsys):
    assert_matches("No file matches", refused(capsys, tmp_path, [tmp_path / "no.csv"], "csv"))
    path = write(tmp_path, "csv", drive())
    with pytest.raises(SystemExit):
        main(["fit", str(path), "--state", "px", "--control", "v", "--out", str(tmp_path)])
    assert "--out is the model file" in capsys.readouterr().out


def assert_matches(message, line):
    assert re.search(message, line), line


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    return {kind: inside(write(folder, kind, drive(), kind)) for kind in FORMATS}


edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "double"]), st.floats(0, 1), st.binary(max_size=8)
    ),
    min_size=1,
    max_size=4,
)


def edited(content, changes):
    for kind, place, extra in changes:
        at = int(place * len(content))
        if kind == "flip":
            content = (
                content[:at] + bytes(b ^ 0x2A for b in content[at : at + 3]) + content[at + 3 :]
            )
        elif kind == "cut":
            content = content[:at] + content[at + len(extra) + 1 :]
        elif kind == "insert":
            content = content[:at] + extra + content[at:]
        else:
            content = content[: at + 20] + content[at:]
    return content


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_bytes_are_refused_or_read(tmp_path, originals, kind, changes):
    """Never anything but a dataset of finite numbers or a ValueError."""
    path = tmp_path / originals[kind].name
    path.write_bytes(edited(originals[kind].read_bytes(), changes))
    try:
        data = offmap.read(path, angles=["theta"], **names(kind))
    except ValueError as error:
        assert str(error)
    else:
        assert np.all(np.isfinite(data.samples().xdot))
