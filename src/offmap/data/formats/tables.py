"""CSV (also .csv.gz, .tsv) and Parquet, read lazily by Polars: only the columns asked for."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offmap.data.formats.topic import Topic, optional

_MISSING = ["", "NA", "N/A", "null", "NULL", "None"]
_SEPARATORS = ",;\t "


def column_names(path: Path) -> tuple[str, ...]:
    """Columns of the table, without blanks around their names."""
    return tuple(_raw_names(path))


def read_columns(path: Path, names: Sequence[str], text: Sequence[str] = ()) -> list[Topic]:
    """The named columns as numbers, those in `text` as strings; a missing cell is NaN."""
    pl = optional("polars", "CSV and Parquet files")
    raw = _raw_names(path)
    _check_last_line(path)
    wanted = list(dict.fromkeys(names))
    types = {raw[name]: pl.String if name in text else pl.Float64 for name in wanted}
    try:
        table = _collect(_scan(path, types).select(list(types)))
        table = table.cast(
            {raw[name]: kind for name, kind in zip(wanted, types.values(), strict=True)}
        )
    except pl.exceptions.PolarsError:
        table = _read_as_text(path, {name: raw[name] for name in wanted}, text)
    columns = {}
    for name in wanted:
        series = table[raw[name]]
        columns[name] = np.asarray(series.to_list()) if name in text else _floats(series)
    return [Topic("", columns)]


def _raw_names(path: Path) -> dict[str, str]:
    """Each name as a user would write it, and as the file spells it."""
    pl = optional("polars", "CSV and Parquet files")
    if _is_parquet(path):
        return {name: name for name in pl.read_parquet_schema(path)}
    if "\0" in _first_line(path):
        raise ValueError("it is not text")
    if not _first_line(path).strip():
        raise ValueError("it is empty, and should begin with a line of column names")
    names = _scan(path, None).collect_schema().names()
    if all(_is_number(name) for name in names):
        raise ValueError("its first line holds numbers instead of column names: add a header")
    return {name.strip().lstrip("\ufeff"): name for name in names}


def _scan(path: Path, types: dict[str, Any] | None) -> Any:
    pl = optional("polars", "CSV and Parquet files")
    if _is_parquet(path):
        return pl.scan_parquet(path)
    return pl.scan_csv(
        path,
        separator=_separator(_first_line(path)),
        schema_overrides=types,
        infer_schema=types is not None,
        null_values=_MISSING,
    )


def _collect(frame: Any) -> Any:
    return frame.collect(engine="streaming")


def _read_as_text(path: Path, raw: dict[str, str], text: Sequence[str]) -> Any:
    """The slow way, which finds the cell that is no number and says where it is."""
    pl = optional("polars", "CSV and Parquet files")
    table = _collect(_scan(path, dict.fromkeys(raw.values(), pl.String)).select(list(raw.values())))
    for name, spelled in raw.items():
        if name in text:
            continue
        words = table[spelled].cast(pl.String).str.strip_chars()
        words = words.set(words.is_in(_MISSING), None)
        numbers = words.cast(pl.Float64, strict=False)
        bad = (numbers.is_null() & words.is_not_null()).arg_true()
        if len(bad):
            raise ValueError(
                f"column {name!r} must hold numbers; row {bad[0]} holds {words[bad[0]]!r:.40}, and "
                f"{len(bad)} of {len(words)} rows hold no number; correct or cut these rows"
            )
        table = table.with_columns(numbers.alias(spelled))
    return table


def _floats(series: Any) -> np.ndarray:
    return np.array(series.to_numpy(), dtype=np.float64)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _first_line(path: Path) -> str:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        return file.readline(1_000_000).decode("utf-8", "replace")


def _check_last_line(path: Path) -> None:
    """A cell that was cut in the middle would still read as a number."""
    if _is_parquet(path) or path.suffix.lower() == ".gz":  # these know their own length
        return
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, 1_000_000), os.SEEK_END)
        last = file.read().decode("utf-8", "replace").rpartition("\n")[2]
    header = _first_line(path)
    mark = _separator(header)
    if last.strip() and last.count(mark) < header.count(mark):
        raise ValueError(
            f"its last line is cut short ({last[:40]!r}): copy the file again, or delete that line"
        )


def _separator(line: str) -> str:
    """The one that splits the header into most columns, commas first."""
    return max(_SEPARATORS, key=lambda mark: line.strip().count(mark))


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
