"""CSV (also .csv.gz, .tsv) and Parquet, read lazily by Polars: only the columns asked for."""

import csv
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offmap.data.formats.topic import Topic, optional

_MISSING = ["", "NA", "N/A", "null", "NULL", "None"]
_SEPARATORS = ",;\t "
_ROWS_THAT_TELL = 10_000  # from which the type of a column is taken; it may stand still at first


def column_names(path: Path) -> tuple[str, ...]:
    """Columns of the table, without blanks around their names."""
    return tuple(_spelled(path))


def read_columns(path: Path, names: Sequence[str], raw: Sequence[str] = ()) -> list[Topic]:
    """The named columns as numbers, those in `raw` as they are; a missing cell is NaN."""
    pl = optional("polars", "CSV and Parquet files")
    spelled = _spelled(path)
    _check_last_line(path)
    wanted = {name: spelled[name] for name in names}
    numbers = {spelling: pl.Float64 for name, spelling in wanted.items() if name not in raw}
    try:
        table = _collect(_scan(path, numbers).select(list(wanted.values())))
        table = table.cast(numbers)
    except pl.exceptions.PolarsError:
        table = _read_as_text(path, wanted, raw)
    return [
        Topic(
            "",
            {
                name: _as_it_is(table[spelling]) if name in raw else _floats(table[spelling])
                for name, spelling in wanted.items()
            },
        )
    ]


def _spelled(path: Path) -> dict[str, str]:
    """Each name as a user would write it, and as the file spells it."""
    pl = optional("polars", "CSV and Parquet files")
    if _is_parquet(path):
        return {name: name for name in pl.read_parquet_schema(path)}
    header = _header(path)
    if "\0" in header.line:
        raise ValueError("it is not text")
    if not header.line.strip():
        raise ValueError("it is empty, and should begin with a line of column names")
    given = [name for name in header.names if name]
    if all(_is_number(name) for name in given):
        raise ValueError("its first line holds numbers instead of column names: add a header")
    repeated = [name for name in given if given.count(name) > 1]
    if repeated:
        raise ValueError(f"its header names {repeated[0]!r} twice: give each column its own name")
    return {_plain(name): name for name in _scan(path, None).collect_schema().names()}


def _plain(name: str) -> str:
    return name.strip().lstrip("\ufeff").strip()


@dataclass(frozen=True)
class _Header:
    """The line of a CSV file that names the columns."""

    line: str
    above: int
    """Lines before it."""
    marked: bool
    """Whether it begins with #, as numpy writes it."""

    @property
    def separator(self) -> str:
        """The one that splits the line into most columns, commas first."""
        return max(_SEPARATORS, key=lambda mark: self.line.strip().count(mark))

    @property
    def names(self) -> list[str]:
        cells = next(csv.reader([self.line], delimiter=self.separator), [])
        return [_plain(cell) for cell in cells]


def _header(path: Path) -> _Header:
    """The first line that is no comment; or the last comment, if numbers follow it."""
    lines = _first_lines(path)
    below = _Header(lines[-1], len(lines) - 1, marked=False)
    comments = [k for k, line in enumerate(lines[:-1]) if line.startswith("#")]
    if comments and all(_is_number(name) for name in below.names if name):
        return _Header(lines[comments[-1]].lstrip("#").strip(), comments[-1], marked=True)
    return below


def _scan(path: Path, types: dict[str, Any] | None) -> Any:
    pl = optional("polars", "CSV and Parquet files")
    if _is_parquet(path):
        return pl.scan_parquet(path)
    header = _header(path)
    table = pl.scan_csv(
        path,
        separator=header.separator,
        has_header=not header.marked,
        new_columns=header.names if header.marked else None,
        skip_lines=header.above + header.marked,
        schema_overrides=types,
        infer_schema=types is not None,
        infer_schema_length=_ROWS_THAT_TELL,
        null_values=_MISSING,
    )
    if types is None or not _has_blank_lines(path):
        return table
    return table.filter(~pl.all_horizontal(pl.all().is_null()))


def _collect(frame: Any) -> Any:
    return frame.collect(engine="streaming")


def _read_as_text(path: Path, wanted: dict[str, str], raw: Sequence[str]) -> Any:
    """The slow way, which finds the cell that is no number and says where it is."""
    pl = optional("polars", "CSV and Parquet files")
    kept = list(wanted.values())
    table = _collect(_scan(path, dict.fromkeys(kept, pl.String)).select(kept))
    for name, spelling in wanted.items():
        if name in raw:
            continue
        words = _words(table[spelling])
        numbers = words.cast(pl.Float64, strict=False)
        bad = (numbers.is_null() & words.is_not_null()).arg_true()
        if len(bad):
            raise ValueError(
                f"column {name!r} must hold numbers; row {bad[0]} holds {words[bad[0]]!r:.40}, and "
                f"{len(bad)} of {len(words)} rows hold no number; correct or cut these rows"
            )
        table = table.with_columns(numbers.alias(spelling))
    return table


def _words(series: Any) -> Any:
    """Cells as text without blanks around; missing ones null, true and false as 1 and 0."""
    pl = optional("polars", "CSV and Parquet files")
    words = series.cast(pl.String).str.strip_chars()
    words = words.set(words.is_in(_MISSING), None)
    truth = words.str.to_lowercase()
    said = truth.is_in(["true", "false"])
    return truth.replace({"true": "1", "false": "0"}) if (said | words.is_null()).all() else words


def _as_it_is(series: Any) -> np.ndarray:
    """Numbers, dates or text, whatever the column holds."""
    pl = optional("polars", "CSV and Parquet files")
    kind = series.dtype
    if kind in (pl.Date, pl.Datetime):
        return np.array(series.cast(pl.Datetime("ns")).to_numpy(), dtype="datetime64[ns]")
    if kind in (pl.Time, pl.Duration):
        return np.array(series.cast(pl.Duration("ns")).to_numpy(), dtype="timedelta64[ns]")
    if kind.is_integer() and not series.null_count():
        return np.array(series.to_numpy())
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return _floats(series.cast(pl.Float64))
    if kind.is_nested() or kind == pl.Binary:
        return np.full(len(series), f"<{kind}>", dtype=object)
    words = _words(series)
    for number in (pl.Int64, pl.Float64):
        values = words.cast(number, strict=False)
        if values.null_count() == words.null_count() < len(words):
            return _as_it_is(values)
    return np.array(words.to_list(), dtype=object)


def _floats(series: Any) -> np.ndarray:
    return np.array(series.to_numpy(), dtype=np.float64)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _bytes(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _first_lines(path: Path) -> list[str]:
    """Comments and empty lines at the top, and the line behind them."""
    lines: list[str] = []
    with _bytes(path) as file:
        while line := file.readline(1_000_000):
            lines.append(line.decode("utf-8", "replace"))
            if line.strip() and not line.startswith(b"#"):
                break
    return lines or [""]


def _has_blank_lines(path: Path) -> bool:
    last = b""
    with _bytes(path) as file:
        while block := file.read(1 << 20):
            text = (last + block).replace(b"\r\n", b"\n")
            if b"\n\n" in text:
                return True
            last = block[-2:]
    return False


def _check_last_line(path: Path) -> None:
    """A cell that was cut in the middle would still read as a number."""
    if _is_parquet(path) or path.suffix.lower() == ".gz":  # these know their own length
        return
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, 1_000_000), os.SEEK_END)
        last = file.read().decode("utf-8", "replace").rpartition("\n")[2]
    header = _header(path)
    if last.strip() and last.count(header.separator) < header.line.count(header.separator):
        raise ValueError(
            f"its last line is cut short ({last[:40]!r}): copy the file again, or delete that line"
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
