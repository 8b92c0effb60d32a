"""The runs in a log file: by file, by group, by a column; each column with its clock."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from offmap.data.formats import Topic, column_names, is_bag, nearest, read_columns
from offmap.data.formats.bags import STAMP


@dataclass(frozen=True)
class LoggedRun:
    """The streams of one recording."""

    name: str
    streams: list[Topic]


def logged_runs(
    path: Path,
    columns: Sequence[str],
    time: str | None,
    traj: str | None,
    dt: float | None,
    unit: float,
) -> list[LoggedRun]:
    """What a file holds, run by run, each stream with its time in seconds.

    A column `a/b/px` keeps the time `a/b/t`, else `a/t`, else `t`: columns of one clock are one
    stream. Names that exist only inside groups, `px` for `run0/px` and `run1/px`, make every group
    that has them all a run.
    """
    if is_bag(path):
        text = () if traj is None else (traj,)
        kind = STAMP if time == STAMP else "t"
        return [LoggedRun(str(path), read_columns(path, columns, text=text, clock=kind))]
    if time is None and dt is None:
        raise ValueError("Rows without a time column need their step: give dt in seconds.")
    known = column_names(path)
    _check_time_column(path, time, known)
    runs = []
    for group in _groups(path, columns, known):
        parts: dict[tuple[str | None, str | None], list[str]] = {}
        for name in columns:
            clock, label = (_above(group + name, wanted, known) for wanted in (time, traj))
            parts.setdefault((clock, label), []).append(name)
        where = f"{path}, {group.rstrip('/')}" if group else str(path)
        runs += _split(where, [_stream(path, group, p, *by, dt, unit) for by, p in parts.items()])
    return [
        LoggedRun(run.name if label is None else f"{run.name}, {traj} = {label}", run.streams)
        for run, label in runs
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


def _stream(
    path: Path,
    group: str,
    names: list[str],
    clock: str | None,
    label: str | None,
    dt: float | None,
    unit: float,
) -> tuple[Topic, np.ndarray | None]:
    """Columns that share a clock, and the label of every row."""
    text = () if label is None else (label,)
    wanted = [*(group + name for name in names), *filter(None, [clock, label])]
    (table,) = read_columns(path, wanted, text=text)
    columns = {name: table.columns[group + name] for name in names}
    count = len(columns[names[0]])
    time = np.arange(count) * (dt or 1.0) if clock is None else table.columns[clock] * unit
    labels = None if label is None else np.asarray([str(row) for row in table.columns[label]])
    return Topic("", columns, time), labels


def _split(
    where: str, streams: list[tuple[Topic, np.ndarray | None]]
) -> list[tuple[LoggedRun, str | None]]:
    """One run, or one for every label."""
    labels = streams[0][1]
    if labels is None:
        return [(LoggedRun(where, [stream for stream, _ in streams]), None)]
    return [
        (LoggedRun(where, [_rows(stream, own == label) for stream, own in streams]), label)
        for label in dict.fromkeys(labels)
    ]


def _rows(stream: Topic, keep: np.ndarray) -> Topic:
    columns = {name: column[keep] for name, column in stream.columns.items()}
    return Topic(stream.name, columns, None if stream.time is None else stream.time[keep])


def _check_time_column(path: Path, time: str | None, known: Sequence[str]) -> None:
    if time is None or any(name == time or name.endswith(f"/{time}") for name in known):
        return
    likely = [name for name in known if name.casefold() in ("t", "time", "timestamp", "stamp")]
    hint = f"did you mean {likely[0]!r}?" if likely else nearest(time, list(known))
    raise ValueError(
        f"{path} has no time column {time!r}; {hint} Give its name as `time`, or time=None "
        f"and dt if rows are equally spaced."
    )
