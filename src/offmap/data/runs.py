"""The runs in a log file: by file, by group, by a column; each column with its clock."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from offmap.data.checks import check_unit
from offmap.data.formats import Topic, column_names, is_bag, nearest, read_columns, row_counts
from offmap.data.formats.bags import STAMP
from offmap.data.formats.stamps import in_seconds, is_date, named_time

_MOSTLY = 0.5  # share of empty cells that makes a column one of another rate


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
    known, rows = column_names(path), row_counts(path)
    _check_time_column(path, time, known)
    runs: list[LoggedRun] = []
    for group in _groups(path, columns, known):
        parts: dict[tuple[str | None, str | None], list[str]] = {}
        for name in columns:
            clock, label = (_above(group + name, wanted, known) for wanted in (time, traj))
            clock = _as_long(group + name, clock, rows)
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


def _as_long(column: str, clock: str | None, rows: dict[str, int]) -> str | None:
    """The clock, or the only other time in its group that has as many rows as the column."""
    count = rows.get(column)
    if clock is None or count is None or abs(rows.get(clock, count) - count) <= 1:
        return clock
    group = column.rpartition("/")[0]
    others = [
        name
        for name, length in rows.items()
        if named_time(name) and length == count and name.rpartition("/")[0] == group
    ]
    return others[0] if len(others) == 1 else clock


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
        return [LoggedRun(where, [part for stream, _ in streams for part in _by_rate(stream)])]
    return [
        LoggedRun(
            where,
            [part for stream, own in streams for part in _by_rate(_rows(stream, own == label))],
            str(label),
        )
        for label in dict.fromkeys(labels)
    ]


def _by_rate(table: Topic) -> list[Topic]:
    """Columns that are empty in most rows have a rate of their own: each with its own rows.

    Rows that only such columns fill are no rows of the others. Any other missing value stays.
    """
    missing = {name: np.isnan(column) for name, column in table.columns.items()}
    slow = [name for name, gone in missing.items() if _is_slow(gone)]
    if not slow:
        return [table]
    fast = [gone for name, gone in missing.items() if name not in slow]
    between = np.all(fast, axis=0) if fast else np.zeros(len(missing[slow[0]]), bool)
    between &= np.any([~missing[name] for name in slow], axis=0)
    parts: dict[bytes, list[str]] = {}
    for name, gone in missing.items():
        parts.setdefault((gone if name in slow else between).tobytes(), []).append(name)
    return [
        Topic(", ".join(names[:3]), part.columns, part.time)
        for rows, names in parts.items()
        for part in [_rows(_only(table, names), ~np.frombuffer(rows, bool))]
    ]


def _is_slow(missing: np.ndarray) -> bool:
    """Few values, throughout the log: not those of a sensor that failed halfway."""
    known = np.flatnonzero(~missing)
    rows = len(missing)
    throughout = len(known) > 1 and known[-1] - known[0] > _MOSTLY * rows
    return bool(throughout and len(known) <= (1 - _MOSTLY) * rows)


def _only(stream: Topic, names: list[str]) -> Topic:
    return Topic(stream.name, {name: stream.columns[name] for name in names}, stream.time)


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
