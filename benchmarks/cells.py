"""What benchmarks of many cases share: each case is a file, and what was run is not run again."""

import argparse
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import offmap
from offmap.sweeping import Engine, Folder


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Where cases are kept, and how many run at once."""
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", action="store_true", help="run nothing more")
    parser.add_argument("--cells", type=Path, default=Path("results") / name)
    parser.add_argument("--out", type=Path, default=Path("results") / f"{name}.json")


def answers(
    judge: Callable[[Any], dict], wanted: Iterable[Any], arguments: argparse.Namespace
) -> list[dict]:
    """Those of all cases, which are run; with `--table` of the cases that were run before."""
    cells = {cell.name: cell for cell in wanted}
    if arguments.table:
        held = [Folder(arguments.cells).read(name) for name in cells]
        return [answer[0] for answer in held if answer is not None]
    engine: Engine = "serial" if arguments.jobs == 1 else "pool"
    workers = None if arguments.jobs == 1 else arguments.jobs
    say = partial(print, flush=True)
    found = offmap.sweep(
        judge, cells, out=arguments.cells, engine=engine, workers=workers, progress=say
    )
    return list(found.values())


def records(
    judge: Callable[[Any], dict], wanted: Iterable[Any], arguments: argparse.Namespace
) -> list[dict]:
    """The same, and written to `--out`."""
    found = answers(judge, wanted, arguments)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    arguments.out.write_text(f"[\n{lines}\n]\n")
    return found
