"""The command line: one module for each command, each command a dataclass with a `run`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from offmap.cli.console import console
from offmap.cli.reproduce import Demo, Reproduce

Command = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main() -> None:
    """Entry point of the command `offmap`."""
    _cache_compilations()
    command = tyro.cli(
        Command,
        prog="offmap",
        description="Learn robot dynamics that hold where there is no data.",
    )
    try:
        command.run()
    except ValueError as error:
        console.print(f"[red]offmap:[/red] {error}", highlight=False)
        sys.exit(2)


def _cache_compilations() -> None:
    """Keep compiled programs between runs, so that the second run of a command starts at once."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(root) / "offmap" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    # JAX and BLAS would otherwise compete for the same few cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
