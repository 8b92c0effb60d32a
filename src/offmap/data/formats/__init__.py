"""File formats that robots log in: each lists its columns and reads those asked for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from offmap.data.formats import arrays, bags, tables
from offmap.data.formats.derived import Derived, derived
from offmap.data.formats.topic import Topic, check_names, nearest

__all__ = [
    "SUFFIXES",
    "Topic",
    "check_names",
    "column_names",
    "is_bag",
    "nearest",
    "read_columns",
    "row_counts",
    "table_names",
]

_FORMATS: dict[str, tuple[str, ModuleType]] = {
    ".csv": ("CSV", tables),
    ".csv.gz": ("CSV", tables),
    ".tsv": ("CSV", tables),
    ".txt": ("CSV", tables),
    ".parquet": ("Parquet", tables),
    ".pq": ("Parquet", tables),
    ".npz": ("NPZ", arrays),
    ".h5": ("HDF5", arrays),
    ".hdf5": ("HDF5", arrays),
    ".bag": ("a ROS 1 bag", bags),
    ".mcap": ("MCAP", bags),
    ".db3": ("a ROS 2 bag", bags),
}
SUFFIXES = tuple(_FORMATS)


def column_names(path: Path) -> tuple[str, ...]:
    """Names of all columns, or fields of all messages, that a file offers, and what follows."""
    stored = _stored_names(path)
    return (*stored, *derived(stored))


def _stored_names(path: Path) -> tuple[str, ...]:
    with _speaking_of(path) as format:
        return format.column_names(path)


def row_counts(path: Path) -> dict[str, int]:
    """Rows of each column, where columns of one file may be of different lengths."""
    with _speaking_of(path) as format:
        counts = arrays.row_counts(path) if format is arrays else {}
    rules = derived([*counts])
    return counts | {name: counts[rule.parts[0]] for name, rule in rules.items()}


def table_names(path: Path) -> dict[str, tuple[str, ...]]:
    """Columns that may be read together, by the group of the file they lie in."""
    with _speaking_of(path) as format:
        return format.table_names(path) if format is arrays else {"": format.column_names(path)}


def read_columns(
    path: Path, names: Sequence[str], *, raw: Sequence[str] = (), clock: str = "t"
) -> list[Topic]:
    """Read columns by name, grouped by the clock they share.

    Args:
        path: the file, or the folder of a ROS 2 bag.
        names: what to read; a name that does not exist is refused with the nearest ones.
        raw: names of columns that may also hold dates or text, and are given as they are.
        clock: for bags, "header.stamp" takes the time from the messages' headers.
    """
    stored = _stored_names(path)
    rules = derived(stored)
    check_names(path, names, (*stored, *rules))
    wanted = [part for name in names for part in (rules[name].parts if name in rules else (name,))]
    kept = [part for name in raw for part in (rules[name].parts if name in rules else (name,))]
    with _speaking_of(path) as format:
        streams = (
            bags.read_columns(path, list(dict.fromkeys(wanted)), clock)
            if format is bags
            else format.read_columns(path, list(dict.fromkeys(wanted)), kept)
        )
        return [_with_derived(stream, names, rules) for stream in streams]


def _with_derived(stream: Topic, names: Sequence[str], rules: dict[str, Derived]) -> Topic:
    """The wanted columns of a stream, in order, found where they are not stored."""
    columns = {}
    for name in names:
        if name in stream.columns:
            columns[name] = stream.columns[name]
        elif name in rules and rules[name].parts[0] in stream.columns:
            parts = (stream.columns[part] for part in rules[name].parts)
            columns[name] = rules[name].of(*parts)
    return Topic(stream.name, columns, stream.time)


def is_bag(path: Path) -> bool:
    """Whether the file holds messages with a clock of their own, rather than a table."""
    return _format(path)[1] is bags


def _format(path: Path) -> tuple[str, ModuleType]:
    if path.is_dir():
        if (path / "metadata.yaml").is_file():
            return "a ROS 2 bag", bags
        raise ValueError(
            f"A folder is read if it is a ROS 2 bag, with metadata.yaml in it; got {path}. "
            f"Give the files in it: {path}/*.csv"
        )
    for suffix in sorted(_FORMATS, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return _FORMATS[suffix]
    raise ValueError(
        f"A log is one of {', '.join(SUFFIXES)} or the folder of a ROS 2 bag; got {path}. "
        f"Convert it, or correct its ending."
    )


@contextmanager
def _speaking_of(path: Path) -> Iterator[ModuleType]:
    """The format of a file; whatever goes wrong with it is told with its path, in one line."""
    name, format = _format(path)
    try:
        yield format
    except (ImportError, PermissionError):
        raise
    # Parsers of other people answer damaged bytes with exceptions of every kind.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} cannot be read as {name}: {reason:.300}") from error
