"""NPZ and HDF5: arrays by name (`run/px` in a group), columns of a matrix by index (`x[0]`)."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from offmap.data.formats.topic import Topic, optional

_INDEXED = re.compile(r"(.+)\[(\d+)\]")


def column_names(path: Path) -> tuple[str, ...]:
    """Every vector, and every column of every matrix."""
    return tuple(row_counts(path))


def row_counts(path: Path) -> dict[str, int]:
    """How many rows each column has."""
    with _opened(path) as arrays:
        return {
            name: array.shape[0] for key, array in arrays.items() for name in _columns(key, array)
        }


def table_names(path: Path) -> dict[str, tuple[str, ...]]:
    """The columns of each group that are equally long, or but one row shorter."""
    groups: dict[str, dict[str, int]] = {}
    for name, rows in row_counts(path).items():
        groups.setdefault(name.rpartition("/")[0], {})[name] = rows
    found: dict[str, tuple[str, ...]] = {}
    for group, lengths in groups.items():
        key = group
        while lengths:
            longest = max(lengths.values())
            found[key] = tuple(name for name, rows in lengths.items() if rows >= longest - 1)
            lengths = {name: rows for name, rows in lengths.items() if rows < longest - 1}
            key = next(iter(lengths), "")
    return found


def read_columns(path: Path, names: Sequence[str], raw: Sequence[str] = ()) -> list[Topic]:
    """The named columns as numbers, those in `raw` as they are."""
    columns: dict[str, np.ndarray] = {}
    with _opened(path) as arrays:
        for name in names:
            indexed = None if name in arrays else _INDEXED.fullmatch(name)
            array = arrays[indexed[1]][:, int(indexed[2])] if indexed else arrays[name][:]
            columns[name] = np.asarray(array) if name in raw else _numbers(name, array)
    return [Topic("", _even(columns))]


def _even(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """T controls beside T + 1 states: the last control is repeated, which no sample uses."""
    longest = max(len(column) for column in columns.values())
    for name, column in columns.items():
        if len(column) == longest - 1 and len(column):
            columns[name] = np.append(column, column[-1:])
        elif len(column) != longest:
            raise ValueError(
                f"its columns must be equally long, or one row shorter; {name!r} has "
                f"{len(column)} rows, the longest {longest}"
            )
    return columns


def _numbers(name: str, array: Any) -> np.ndarray:
    values = np.asarray(array)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"column {name!r} must hold numbers; it has dtype {values.dtype}")
    return values.astype(np.float64)


def _columns(key: str, array: Any) -> list[str]:
    if array.dtype.hasobject and array.dtype.metadata is None:  # HDF5 says what its objects are
        return []
    if len(array.shape) == 1:
        return [key]
    return [f"{key}[{i}]" for i in range(array.shape[1])] if len(array.shape) == 2 else []


class _Member:
    """One array of an NPZ file, of which only the header is read before it is used."""

    def __init__(self, file: Any, key: str) -> None:
        self._file, self._key = file, key
        with file.zip.open(f"{key}.npy" if f"{key}.npy" in file.zip.namelist() else key) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            self.shape, _, self.dtype = read(member)

    @cached_property
    def _array(self) -> np.ndarray:
        return self._file[self._key]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self._array[rows]


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Any]]:
    """Arrays by name, read only where they are used."""
    if path.suffix.lower() == ".npz":
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no zip archive, as an NPZ file is")
        with np.load(path, allow_pickle=False) as file:
            yield {key: _Member(file, key) for key in file.files}
        return
    h5py = optional("h5py", "HDF5 files")
    with h5py.File(path, "r") as file:
        found: dict[str, Any] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item

        file.visititems(visit)
        yield found
