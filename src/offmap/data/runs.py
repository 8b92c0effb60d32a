"""The runs in a log file: by file, by group, by a column; each column with its clock."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from offmap.data.checks import check_unit
from offmap.data.formats import Topic, column_names, is_bag, nearest, read_columns
from offmap.data.formats.bags import STAMP
from offmap.data.formats.stamps import in_seconds, is_date, named_time


@dataclass(frozen=True)
class LoggedRun:
    """The streams of one recording."""

    name: str
    streams: list[Topic]
    label: str | None = None
    """What the column says that tells runs apart."""


def logged_runs(
    path: Path,
    columns: Sequence[str],
    time: str | None,
    traj: str | None,
    dt: float | None,
    unit: str | None,
    plan: int = 0,
) -> list[LoggedRun]:
    """What a file holds, run by run, each stream with its time in seconds.

    Up to `plan` rows are taken for written by hand, and their steps may be of any length.

    A column `a/b/px` keeps the time `a/b/t`, else `a/t`, else `t`: columns of one clock are one
    stream. Names that exist only inside groups, `px` for `run0/px` and `run1/px`, make every group
    that has them all a run.
    """
    if is_bag(path):
        if traj is not None:
            raise ValueError(
                f"A bag holds one run and no column that splits it; got {path} with traj={traj!r}. "
                f"Leave `traj` out."
            )
        kind = STAMP if time == STAMP else "t"
        return [LoggedRun(str(path), read_columns(path, columns, clock=kind))]
    if time is None and dt is None:
        raise ValueError("Rows without a time column need their step: give dt in seconds.")
    known = column_names(path)
    _check_time_column(path, time, known)
    runs: list[LoggedRun] = []
    for group in _groups(path, columns, known):
        parts: dict[tuple[str | None, str | None], list[str]] = {}
        for name in columns:
            clock, label = (_above(group + name, wanted, known) for wanted in (time, traj))
            parts.setdefault((clock, label), []).append(name)
        where = f"{path}, {group.rstrip('/')}" if group else str(path)
        tables = [_table(path, group, names, *by) for by, names in parts.items()]
        runs += _split(where, _timed(where, tables, dt, unit, plan))
    return [
        run if run.label is None else replace(run, name=f"{run.name}, {traj} = {run.label}")
        for run in runs
    ]


def _groups(path: Path, columns: Sequence[str], known: Sequence[str]) -> list[str]:
    """Groups that hold all columns, each with its closing slash; the file itself if it has them."""
    if all(name in known for name in columns):
        return [""]
    has: dict[str, set[str]] = {}
    for full in known:
        for name in columns:
            if full.endswith("/" + name):
                has.setdefault(full.removesuffix(name), set()).add(name)
    whole = [group for group, names in has.items() if names == {*columns}]
    for group, names in has.items():
        if whole and group not in whole:
            missing = next(name for name in columns if name not in names)
            warnings.warn(
                f"{path}, {group.rstrip('/')} has no column {missing!r}: it is left out",
                UserWarning,
                stacklevel=2,
            )
    return whole or [""]


def _above(column: str, wanted: str | None, known: Sequence[str]) -> str | None:
    """The wanted name in the group of a column, or in the nearest one around it."""
    folder = column
    while wanted is not None and folder:
        folder = folder.rpartition("/")[0]
        name = f"{folder}/{wanted}" if folder else wanted
        if name in known:
            return name
    return wanted


@dataclass(frozen=True)
class _Table:
    """Columns that share a clock, as they are stored."""

    columns: dict[str, np.ndarray]
    clock: np.ndarray | None
    labels: np.ndarray | None


def _table(
    path: Path, group: str, names: list[str], clock: str | None, label: str | None
) -> _Table:
    further = [*filter(None, [clock, label])]
    (table,) = read_columns(path, [*(group + name for name in names), *further], raw=further)
    labels = None if label is None else np.asarray([str(row) for row in table.columns[label]])
    return _Table(
        {name: table.columns[group + name] for name in names},
        None if clock is None else table.columns[clock],
        labels,
    )


def _timed(
    where: str, tables: list[_Table], dt: float | None, unit: str | None, plan: int
) -> list[tuple[Topic, np.ndarray | None]]:
    """Streams with their time in seconds, and the label of every row."""
    stored = [table.clock for table in tables if table.clock is not None]
    try:
        clocks = iter(in_seconds(stored, unit))
    except ValueError as error:
        raise ValueError(f"{where}: {error}.") from error
    found = []
    for table in tables:
        count = len(next(iter(table.columns.values())))
        time = np.arange(count) * (dt or 1.0) if table.clock is None else next(clocks)
        plain = table.clock is not None and unit is None and not is_date(table.clock)
        if plain and count > plan:
            check_unit(where, time)
        found.append((Topic("", table.columns, time), table.labels))
    return found


def _split(where: str, streams: list[tuple[Topic, np.ndarray | None]]) -> list[LoggedRun]:
    """One run, or one for every label."""
    labels = streams[0][1]
    if labels is None:
        return [LoggedRun(where, [stream for stream, _ in streams])]
    return [
        LoggedRun(where, [_rows(stream, own == label) for stream, own in streams], str(label))
        for label in dict.fromkeys(labels)
    ]


def _rows(stream: Topic, keep: np.ndarray) -> Topic:
    columns = {name: column[keep] for name, column in stream.columns.items()}
    return Topic(stream.name, columns, None if stream.time is None else stream.time[keep])


def _check_time_column(path: Path, time: str | None, known: Sequence[str]) -> None:
    if time is None or any(name == time or name.endswith(f"/{time}") for name in known):
        return
    likely = [name for name in known if named_time(name)]
    hint = f"did you mean {likely[0]!r}?" if likely else nearest(time, list(known))
    raise ValueError(
        f"{path} has no time column {time!r}; {hint} Give its name as `time`, or time=None "
        f"and dt if rows are equally spaced."
    )
