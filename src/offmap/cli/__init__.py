"""The command line: one module for each command, each command a dataclass with a `run`."""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from offmap.cli.bench import Bench
from offmap.cli.console import fail
from offmap.cli.fit import Fit
from offmap.cli.inspect import Inspect
from offmap.cli.report import Report
from offmap.cli.reproduce import Demo, Reproduce
from offmap.cli.rollout import Rollout
from offmap.sweeping import prepare_process

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
    prepare_process()
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
