"""What every file format gives: named columns that share a clock."""

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Topic:
    """Columns of one table, or fields of one topic: equally long, and measured together."""

    name: str
    columns: dict[str, np.ndarray]
    time: Float[np.ndarray, " N"] | None = None
    """Seconds, where the format itself keeps time; otherwise one of the columns may."""


def optional(module: str, what: str) -> Any:
    """A library that only some formats need."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Reading {what} needs the package {error.name}, which is not installed. "
            f"Install offmap with its extra `logs`: pip install 'offmap[logs]'."
        ) from error


def check_names(path: Path, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that a file does not have, with those it has that come nearest."""
    known = list(known)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{path} has no column {name!r}; {nearest(name, known)}")


def nearest(name: str, known: list[str], most: int = 8) -> str:
    """A hint at what was meant."""
    folded = {other.casefold(): other for other in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(repr(folded[match]) for match in close)}?"
    # In long paths such as /odom.pose.pose.position.x the last word says most.
    last = name.replace("/", ".").rpartition(".")[2].casefold()
    alike = [other for other in known if last and other.casefold().endswith(last)][:3]
    if alike:
        return f"did you mean {' or '.join(map(repr, alike))}?"
    listed = ", ".join(f"{other!r:.40}" for other in known[:most]) + (
        ", …" if len(known) > most else ""
    )
    return f"it has {listed or 'none'}"
