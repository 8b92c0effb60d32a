"""What is in a log file, and how it might be mapped to states and controls."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from offmap.data.formats import Topic, read_columns, table_names

_LOOKS = {
    "time": {"t", "time", "timestamp", "stamp", "secs", "seconds"},
    "run": {"traj", "trajectory", "run", "episode", "trial"},
    "index": {"k", "i", "index", "row", "step", "seq"},
    "angle": {"theta", "yaw", "heading", "psi", "phi", "roll", "pitch", "angle"},
    "control": {"u", "cmd", "command", "control", "omega", "throttle", "steer", "steering"}
    | {"torque", "thrust", "tau", "action", "motor"},
}
"""Words in a column's name that tell what it holds."""
_SHORT = {"control": {"v", "w"}}
"""Letters that count only as the whole name."""
_GAP = 3.0
_BOOKKEEPING = ("header", "covariance", "stamp", "seq")


@dataclass(frozen=True)
class Column:
    """One column: its range and what it looks like."""

    name: str
    low: float
    high: float
    missing: int
    looks: str
    """As in `_LOOKS`; or "constant", "text", or "" for any other, perhaps a state."""


@dataclass(frozen=True)
class StreamReport:
    """One table, or one topic."""

    name: str
    rows: int
    rate: float | None
    """Rows per second; None if there is no clock."""
    gaps: int
    """Pauses longer than three usual steps."""
    longest_gap: float
    backward: int
    """Rows whose time does not increase."""
    columns: tuple[Column, ...]


def inspect(path: Path) -> tuple[StreamReport, ...]:
    """Streams of a file with rates, gaps and columns."""
    reports: list[StreamReport] = []
    for group, names in table_names(path).items():
        names = tuple(name for name in names if not _is_bookkeeping(name))
        if names:
            streams, text = _read(path, list(names))
            reports += [
                _report(
                    stream, stream.name or group, [n for n in text if n.startswith(stream.name)]
                )
                for stream in streams
            ]
    if not reports:
        raise ValueError(f"{path} holds no numeric columns. Is it a log?")
    return tuple(reports)


def suggestion(files: Sequence[str], reports: Sequence[StreamReport]) -> str:
    """A command line to start from."""
    columns = _common(reports)
    by = {look: [c.name for c in columns if c.looks == look] for look in _LOOKS}
    states = [c.name for c in columns if c.looks in ("", "angle")]
    parts = ["offmap fit", *files, "--state", *(states or ["…"])]
    parts += ["--control", *(by["control"] or ["…"])]
    parts += ["--angles", *by["angle"]] if by["angle"] else []
    parts += ["--traj", by["run"][0]] if by["run"] else []
    if by["time"]:
        parts += ["--time", by["time"][0].rpartition("/")[2]]
    elif all(report.rate is None for report in reports):
        parts += ["--time", "None", "--dt", "…"]
    return " ".join(parts)


def _common(reports: Sequence[StreamReport]) -> list[Column]:
    """All columns; or, where groups are alike, those of one of them, named as inside it."""
    inside = [
        [replace(c, name=c.name.removeprefix(f"{report.name}/")) for c in report.columns]
        for report in reports
    ]
    tables = [tuple(column.name for column in columns) for columns in inside]
    most = max(tables, key=tables.count)
    if tables.count(most) > 1:
        return inside[tables.index(most)]
    return [column for report in reports for column in report.columns]


def _read(path: Path, names: list[str]) -> tuple[list[Topic], list[str]]:
    """All columns that are numbers, and the names of those that are not."""
    try:
        return read_columns(path, names), []
    except ValueError:
        numeric = [name for name in names if _is_numeric(path, name)]
        if not numeric:
            raise
        return read_columns(path, numeric), [name for name in names if name not in numeric]


def _is_numeric(path: Path, name: str) -> bool:
    try:
        read_columns(path, [name])
    except ValueError:
        return False
    return True


def _is_bookkeeping(name: str) -> bool:
    return name.startswith("/") and any(word in name for word in _BOOKKEEPING)


def _report(stream: Topic, name: str, text: list[str]) -> StreamReport:
    clock, clock_name = stream.time, None
    if clock is None:
        clock_name = _time_column(stream)
        clock = stream.columns[clock_name] if clock_name else None
    steps = np.diff(clock) if clock is not None else np.zeros(0)
    usual = float(np.median(steps)) if steps.size else 0.0
    pauses = steps[steps > _GAP * usual] if usual > 0 else np.zeros(0)
    columns = [_column(name, values, name == clock_name) for name, values in stream.columns.items()]
    return StreamReport(
        name,
        len(next(iter(stream.columns.values()))),
        1 / usual if usual > 0 else None,
        len(pauses),
        float(pauses.max(initial=0.0)),
        int(np.sum(steps <= 0)),
        (*columns, *(Column(name, np.nan, np.nan, 0, "text") for name in text)),
    )


def _time_column(stream: Topic) -> str | None:
    """A column called time, or else the first that only ever increases."""
    named = [name for name in stream.columns if _named(name) == "time"]
    rising = [
        name
        for name, values in stream.columns.items()
        if len(values) > 2 and np.all(np.diff(values) > 0)
    ]
    return next(iter(named + rising), None)


def _column(name: str, values: np.ndarray, is_time: bool) -> Column:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    looks = _named(name)
    if is_time:
        looks = "time"
    elif not finite.size or low == high:
        looks = "constant"
    elif looks in ("", "control", "time") and _wraps(finite, low, high):
        looks = "angle"
    return Column(name, low, high, len(values) - len(finite), looks)


def _named(name: str) -> str:
    """What the words of a name say: the last field of a message, the topic for controls."""
    field = re.split(r"[./]", name.lower())[-1]
    words = re.split(r"[^a-z]+", field)
    topic = re.split(r"[^a-z]+", name.lower().partition(".")[0])
    for looks, known in _LOOKS.items():
        if words[0] in known or (looks == "control" and {*words, *topic} & known):
            return looks
    return next((looks for looks, letters in _SHORT.items() if field in letters), "")


def _wraps(values: np.ndarray, low: float, high: float) -> bool:
    """Within one turn, and jumping by about one."""
    steps = np.abs(np.diff(values))
    jumps = np.abs(steps - 2 * np.pi) < 0.3
    inside = high - low <= 2 * np.pi + 1e-6
    return bool(inside and jumps.any() and np.median(steps) < 0.3)
