"""The command line: one module for each command, each command a dataclass with a `run`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import tyro
from threadpoolctl import threadpool_limits

from offmap.cli.bench import Bench
from offmap.cli.console import fail
from offmap.cli.fit import Fit
from offmap.cli.inspect import Inspect
from offmap.cli.report import Report
from offmap.cli.reproduce import Demo, Reproduce
from offmap.cli.rollout import Rollout

Command = (
    Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `offmap`; arguments are those of the process if None."""
    _cache_compilations()
    threadpool_limits(1, "blas")  # JAX has threads of its own: more would fight for the same cores
    command = tyro.cli(
        Command,
        args=arguments,
        prog="offmap",
        description="Learn robot dynamics that hold where there is no data.",
    )
    try:
        command.run()
    except (ValueError, OSError, ImportError) as error:
        fail(error)
        sys.exit(2)


def _cache_compilations() -> None:
    """Keep compiled programs between runs, so that the second run of a command starts at once."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(root / "offmap" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
