"""What is in a log file: streams, rates, gaps, and what each column looks like."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from offmap.data.formats import Topic, read_columns, table_names
from offmap.data.formats.derived import ANGLES, derived, quaternions
from offmap.data.formats.stamps import in_seconds, is_date, likely_unit, named_time

_LOOKS = {
    "run": {"traj", "trajectory", "run", "episode", "trial"},
    "index": {"k", "i", "index", "row", "step", "seq"},
    "angle": {"theta", "yaw", "heading", "psi", "phi", "roll", "pitch", "angle"},
    "control": {"u", "cmd", "command", "control", "omega", "throttle", "steer", "steering"}
    | {"torque", "thrust", "tau", "action", "motor"},
}
"""Words in a column's name that tell what it holds."""
_SHORT = {"control": {"v", "w"}}
"""Letters that count only as the whole name."""
_PLACES = {"x", "y", "z", "p", "q", "px", "py", "pz", "pos", "position", "pose", "state", "s"}
"""Words that begin the name of a state, however evenly it grows."""
_GAP = 3.0
_EVEN = 0.1  # of a step: how far the middle nine tenths of a clock's steps may differ
_LENGTH = 0.05  # by which a quaternion's length may differ from 1
_BOOKKEEPING = ("header", "covariance", "stamp", "seq")


@dataclass(frozen=True)
class Column:
    """One column: its range and what it looks like."""

    name: str
    low: float
    high: float
    missing: int
    looks: str
    """As in `_LOOKS`; or "time", "quaternion", "degrees", "constant", "text", or "" for any other,
    perhaps a state."""


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
    clock: str | None = None
    """The column that tells the time, if one does."""
    unit: str | None = None
    """Of that column, where it is not plainly seconds."""


def inspect(path: Path) -> tuple[StreamReport, ...]:
    """Streams of a file with rates, gaps and columns."""
    reports: list[StreamReport] = []
    for group, names in table_names(path).items():
        kept = [name for name in names if name and not _is_bookkeeping(name)]
        streams = read_columns(path, kept, raw=kept) if kept else []
        reports += [_report(stream, stream.name or group) for stream in streams]
    columns = [column for report in reports for column in report.columns]
    if all(column.looks.startswith("text") for column in columns):
        for column in columns[:1]:
            read_columns(path, [column.name])  # says which cell is no number
        raise ValueError(f"{path} holds no numeric columns. Is it a log?")
    return tuple(reports)


def _is_bookkeeping(name: str) -> bool:
    return name.startswith("/") and any(word in name for word in _BOOKKEEPING)


def _report(stream: Topic, name: str) -> StreamReport:
    stored = stream.columns
    clock, seconds, unit = _clock(stream) if stream.time is None else (None, stream.time, None)
    steps = np.diff(seconds) if seconds is not None else np.zeros(0)
    usual = float(np.median(steps)) if steps.size else 0.0
    pauses = steps[steps > _GAP * usual] if usual > 0 else np.zeros(0)
    return StreamReport(
        name,
        len(next(iter(stored.values()))),
        1 / usual if usual > 0 else None,
        len(pauses),
        float(pauses.max(initial=0.0)),
        int(np.sum(steps <= 0)),
        tuple(_columns(stored, clock)),
        clock,
        unit,
    )


def _columns(stored: dict[str, np.ndarray], clock: str | None) -> list[Column]:
    """All columns, and the angles of quaternions beside their components."""
    numbers = {n: v.astype(np.float64) for n, v in stored.items() if v.dtype.kind in "biuf"}
    attitudes = {
        stem: parts
        for stem, parts in quaternions([*numbers]).items()
        if _is_attitude([numbers[part] for part in parts])
    }
    parts = {part for four in attitudes.values() for part in four}
    rules = derived([*stored])
    timed = {clock, *(rules[clock].parts if clock in rules else ())}
    found = []
    for name, values in stored.items():
        if name in timed or values.dtype.kind in "mM":
            found.append(_timing(name, numbers.get(name)))
        elif name not in numbers:
            looks = "text, named like a time" if named_time(name) else "text"
            found.append(Column(name, np.nan, np.nan, 0, looks))
        else:
            found.append(_column(name, numbers[name], "quaternion" if name in parts else ""))
    for stem, four in attitudes.items():
        found += [
            _column(stem + angle, of(*(numbers[part] for part in four)))
            for angle, of in ANGLES.items()
        ]
    return found


def _is_attitude(components: list[np.ndarray]) -> bool:
    length = np.sqrt(np.sum(np.square(components), axis=0))
    length = length[np.isfinite(length)]
    return bool(length.size and np.all(np.abs(length - 1) < _LENGTH))


def _clock(stream: Topic) -> tuple[str | None, Float[np.ndarray, " N"] | None, str | None]:
    """The column that tells the time, its seconds, and its unit unless that is plain."""
    stored = stream.columns
    rules = derived([*stored])
    pairs = [name for name, rule in rules.items() if len(rule.parts) == 2]
    named = [name for name in stored if named_time(name)]
    dates = [name for name, values in stored.items() if values.dtype.kind in "mM"]
    even = [name for name, values in stored.items() if _ticks(name, values)]
    for name in pairs + named + dates + even:
        try:
            values = stored.get(name)
            if values is None:
                values = rules[name].of(*(stored[part] for part in rules[name].parts))
            unit = None if is_date(values) else likely_unit(name, values)
            return name, in_seconds([values], unit)[0], unit
        except ValueError:  # text that is no date
            continue
    return None, None, None


def _ticks(name: str, values: np.ndarray) -> bool:
    """Whether a column that is called nothing in particular grows evenly, as a clock does."""
    field = re.split(r"[./]", name.lower())[-1]
    first = re.split(r"[^a-z]+", field)[0]
    if len(values) < 4 or values.dtype.kind not in "iuf" or _named(name) or first in _PLACES:
        return False
    steps = np.diff(values.astype(np.float64))
    if "[" in field or not np.all(steps > 0):
        return False
    low, usual, high = np.quantile(steps, [0.05, 0.5, 0.95])
    return bool(high - low <= _EVEN * usual)


def _timing(name: str, values: np.ndarray | None) -> Column:
    finite = np.zeros(0) if values is None else values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    return Column(name, low, high, 0 if values is None else len(values) - len(finite), "time")


def _column(name: str, values: np.ndarray, looks: str = "") -> Column:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)
    looks = looks or _named(name)
    if not finite.size or low == high:
        looks = "constant"
    elif looks in ("", "control", "time") and _wraps(finite, low, high, 2 * np.pi):
        looks = "angle"
    elif looks in ("", "angle") and _wraps(finite, low, high, 360.0):
        looks = "degrees"
    return Column(name, low, high, len(values) - len(finite), looks)


def _named(name: str) -> str:
    """What the words of a name say: the last field of a message, the topic for controls."""
    if named_time(name):
        return "time"
    field = re.split(r"[./]", name.lower())[-1]
    words = re.split(r"[^a-z]+", field)
    topic = re.split(r"[^a-z]+", name.lower().partition(".")[0])
    for looks, known in _LOOKS.items():
        if words[0] in known or (looks == "control" and {*words, *topic} & known):
            return looks
    return next((looks for looks, letters in _SHORT.items() if field in letters), "")


def _wraps(values: np.ndarray, low: float, high: float, turn: float) -> bool:
    """Within one turn, and jumping by about one."""
    steps = np.abs(np.diff(values))
    jumps = np.abs(steps - turn) < 0.05 * turn
    inside = high - low <= turn * (1 + 1e-6)
    return bool(inside and jumps.any() and np.median(steps) < 0.05 * turn)
