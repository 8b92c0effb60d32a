"""Time stamps as files keep them, numbers or dates, as seconds."""

import re

import numpy as np
from jaxtyping import Float

from offmap.data.formats.topic import optional

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LAYOUTS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f%#z")
_NO_DATE = np.iinfo(np.int64).min
_UNIT_NAMES = {
    "ms": {"ms", "msec", "msecs", "millis", "milliseconds"},
    "us": {"us", "usec", "usecs", "micros", "microseconds"},
    "ns": {"ns", "nsec", "nsecs", "nanos", "nanosec", "nanoseconds"},
}
_EPOCH = {3: "s", 4: "ms", 5: "us", 6: "ns"}
"""Unit of counts since 1970, by the thousands in them: 1.7e9 s, 1.7e12 ms, 1.7e15 us, 1.7e18 ns."""
_LONGEST_STEP = 10.0  # seconds; a robot's log that seems slower is in other units
_NAMES = {"t", "time", "timestamp", "timestamps", "stamp", "sec", "secs", "seconds"}
_NAMES |= {"date", "datetime", "clock", "epoch", "utc"}


def named_time(name: str) -> bool:
    """Whether the first word of a name, behind its group, says that it is a time."""
    field = re.split(r"[./]", name.lower())[-1]
    return re.split(r"[^a-z]+", field)[0] in _NAMES


def likely_unit(name: str, stamps: np.ndarray) -> str | None:
    """The unit of numbers that tell the time, by their name and size; None for plain seconds."""
    words = {*re.split(r"[^a-z]+", name.lower())}
    said = [unit for unit, spellings in _UNIT_NAMES.items() if words & spellings]
    step = odd_step(stamps)
    if said or step is None:
        return said[0] if said else None
    thousands = int(np.log10(max(float(np.nanmin(stamps)), 1.0)) // 3)
    if thousands in _EPOCH:
        return _EPOCH[thousands]
    return next((unit for unit in ("ms", "us") if step * SECONDS[unit] < 1), "ns")


def odd_step(clock: np.ndarray) -> float | None:
    """The usual step of a clock that hardly counts seconds: too long, or in whole numbers."""
    steps = np.diff(clock.astype(np.float64))
    steps = steps[np.isfinite(steps)]
    step = float(np.median(steps)) if steps.size else 0.0
    whole = step >= 1 and bool(np.all(steps == np.round(steps)))
    return step if step > _LONGEST_STEP or whole else None


def is_date(stamps: np.ndarray) -> bool:
    """Whether stamps say by themselves which moment they mean, or how long they last."""
    return stamps.dtype.kind in "mMUSO"


def in_seconds(clocks: list[np.ndarray], unit: str | None) -> list[Float[np.ndarray, " N"]]:
    """Clocks of one recording in seconds: dates by what they say, numbers in the unit given.

    Whole numbers and dates are counted from the earliest, since seconds since 1970 have few digits
    left behind the point.
    """
    counts = [_dates(clock) if is_date(clock) else _numbers(clock) for clock in clocks]
    scales = [SECONDS["ns" if is_date(clock) else unit or "s"] for clock in clocks]
    whole = all(count.dtype.kind == "i" for count in counts) and len(set(scales)) == 1
    known = [count[count != _NO_DATE] for count in counts] if whole else []
    origin = min((int(count.min()) for count in known if len(count)), default=0)
    return [
        np.where(count == _NO_DATE, np.nan, count - origin) * scale
        for count, scale in zip(counts, scales, strict=True)
    ]


def _numbers(stamps: np.ndarray) -> np.ndarray:
    return stamps.astype(np.int64 if stamps.dtype.kind in "iu" else np.float64)


def _dates(stamps: np.ndarray) -> np.ndarray:
    """Nanoseconds."""
    if stamps.dtype.kind == "M":
        return stamps.astype("datetime64[ns]").astype(np.int64)
    if stamps.dtype.kind == "m":
        return stamps.astype("timedelta64[ns]").astype(np.int64)
    return parsed(stamps).astype(np.int64)


def parsed(stamps: np.ndarray) -> np.ndarray:
    """Moments written as ISO 8601, 2024-05-01T12:00:00.25 with or without a time zone."""
    pl = optional("polars", "dates written as text")
    text = stamps.astype("U") if stamps.dtype.kind == "S" else stamps
    words = pl.Series([*text.astype(object)], dtype=pl.String, strict=False).str.strip_chars()
    words = words.str.replace(" ", "T", literal=True).str.replace(",", ".", literal=True)
    for layout in _LAYOUTS:
        dates = words.str.to_datetime(layout, time_unit="ns", strict=False)
        if dates.null_count() == words.null_count():
            return dates.dt.replace_time_zone(None).to_numpy().astype("datetime64[ns]")
    bad = int((dates.is_null() & words.is_not_null()).arg_max() or 0)
    raise ValueError(
        f"time must hold numbers or dates such as 2024-05-01T12:00:00.25; row {bad} holds "
        f"{words[bad]!r:.40}; correct it, or name another column"
    )
