"""How the columns of a log might be mapped to states and controls."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from offmap.data.inspection import Column, StreamReport

_STATES = ("", "angle", "degrees")


def suggestion(files: Sequence[str], reports: Sequence[StreamReport]) -> str:
    """A command line to start from, as a shell takes it; see also `cautions`."""
    columns = _common(reports)
    parts = ["offmap", "fit", *files]
    for option, names in (
        ("--state", _states(columns)),
        ("--control", _that_look(columns, "control")),
        ("--angles", _that_look(columns, "angle")),
        ("--traj", _that_look(columns, "run")[:1]),
        ("--time", _clock(reports)),
        ("--time-unit", _unit(reports)),
    ):
        parts += [option, *names] if names else []
    return " ".join(map(shlex.quote, parts))


def cautions(reports: Sequence[StreamReport]) -> list[str]:
    """What the suggestion lacks, or what about it needs a second look."""
    columns = _common(reports)
    said = []
    if not _states(columns):
        said.append("no column looks like a state: add --state with those that move")
    if not _that_look(columns, "control"):
        said.append("no column looks like a control: add --control with those that drive the robot")
    if _clock(reports) == ["None"]:
        said.append(
            "no column looks like a clock: add --dt with the seconds between rows, or --time"
        )
    for name in _that_look(columns, "degrees"):
        said.append(f"{name} seems to be in degrees: angles are in radians, so convert it first")
    for name in _that_look(columns, "text, named like a time"):
        said.append(f"{name} is neither numbers nor dates such as 2024-05-01T12:00:00.25")
    return said


def _states(columns: list[Column]) -> list[str]:
    """Poses without the measured velocities beside them, where there are both."""
    names = [_short(column.name) for column in columns if column.looks in _STATES]
    moving = [name for name in names if not {"twist"} & _path(name)]
    return moving if any("pose" in _path(name) for name in moving) else names


def _path(name: str) -> set[str]:
    return {*re.split(r"[^a-z]+", name.lower())}


def _that_look(columns: list[Column], looks: str) -> list[str]:
    return [_short(column.name) for column in columns if column.looks == looks]


def _short(name: str) -> str:
    """A name that the command line does not take for an option."""
    return f"{name.lstrip('-')}={name}" if name.startswith("-") else name


def _clock(reports: Sequence[StreamReport]) -> list[str]:
    names = [report.clock.rpartition("/")[2] for report in reports if report.clock is not None]
    return names[:1] or ([] if any(report.rate is not None for report in reports) else ["None"])


def _unit(reports: Sequence[StreamReport]) -> list[str]:
    return [report.unit for report in reports if report.unit is not None][:1]


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
