"""`offmap inspect`: what is in a log, before anything is fitted."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from offmap.cli.console import check_writable, console, say, warn, write_json

if TYPE_CHECKING:
    from offmap.data.inspection import StreamReport


@dataclass(frozen=True)
class Inspect:
    """List streams, rates, gaps and columns of log files, and suggest how to fit them.

    Example: offmap inspect logs/run1.mcap --out inspect.json
    """

    files: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files or patterns."""
    out: Path | None = None
    """JSON file for the same numbers."""

    def run(self) -> None:
        """Look into each file."""
        from offmap.data import find_files
        from offmap.data.inspection import inspect
        from offmap.data.suggesting import cautions, suggestion

        if self.out is not None:
            check_writable(self.out)
        reports = {str(path): inspect(path) for path in find_files(self.files)}
        for path, streams in reports.items():
            for stream in streams:
                console.print(_table(path, stream))
        first = next(iter(reports.values()))
        missing = cautions(first)
        for caution in missing:
            warn(caution)
        added = " and adding what is missing" if missing else ""
        say(f"Perhaps, after checking which columns are states and which controls{added}:")
        say(f"  {suggestion(self.files, first)}")
        if self.out is not None:
            content = {path: [_plain(stream) for stream in s] for path, s in reports.items()}
            say(f"Numbers: {write_json(self.out, content)}")


def _table(path: str, stream: "StreamReport") -> Table:
    rate = "no clock" if stream.rate is None else f"{stream.rate:.4g} Hz"
    gaps = f", {stream.gaps} gaps up to {stream.longest_gap:.3g} s" if stream.gaps else ", no gaps"
    backward = f", time does not increase at {stream.backward} rows" if stream.backward else ""
    title = f"{path} {stream.name}: {stream.rows} rows, {rate}{gaps}{backward}"
    table = Table("column", "least", "largest", "missing", "looks like", title=escape(title))
    table.title_justify = "left"
    for column in stream.columns:
        table.add_row(
            escape(column.name),
            f"{column.low:.4g}",
            f"{column.high:.4g}",
            str(column.missing or ""),
            column.looks,
        )
    return table


def _plain(stream: "StreamReport") -> dict[str, Any]:
    """As JSON, which knows no NaN."""
    content = asdict(stream)
    for column in content["columns"]:
        for key in ("low", "high"):
            column[key] = None if math.isnan(column[key]) else column[key]
    return content
