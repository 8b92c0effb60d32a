"""The command line: `offmap reproduce`, `offmap demo`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from offmap.paper import Result


@dataclass(frozen=True)
class Reproduce:
    """Run a simulated experiment of the paper and print our table beside the paper's.

    Example: offmap reproduce unicycle --preset paper --trials 10 --seed 0 --out results
    """

    system: Annotated[Literal["unicycle", "quadrotor", "all"], tyro.conf.Positional]
    """Which experiment."""
    preset: Literal["paper", "default"] = "paper"
    """paper: the paper's method, repaired where its text cannot work. default: the best we know."""
    trials: int = 10
    """Online data sets; each has 5 test rollouts."""
    seed: int = 0
    """Equal seeds give equal results."""
    out: Path = Path("results")
    """Folder for the JSON, the table as text and the figures."""


@dataclass(frozen=True)
class Demo:
    """Fit the unicycle, say what was discovered, and print the table beside the paper's.

    Example: offmap demo --out results/demo
    """

    seed: int = 0
    """Equal seeds give equal results."""
    out: Path = Path("results/demo")
    """Folder for the JSON, the table as text and the figures."""


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
    console = Console()
    try:
        if isinstance(command, Reproduce):
            names = ("unicycle", "quadrotor") if command.system == "all" else (command.system,)
            for name in names:
                _run(name, command.preset, command.trials, command.seed, command.out, console)
        else:
            _demo(command, console)
    except ValueError as error:
        console.print(f"[red]offmap:[/red] {error}", highlight=False)
        sys.exit(2)


def _demo(command: Demo, console: Console) -> None:
    result = _run("unicycle", "paper", 10, command.seed, command.out, console)
    model = result.stages[True].models["DGP"]
    console.print("\n[bold]What was discovered from the data alone[/bold]")
    console.print(model.summary(), highlight=False, soft_wrap=True)


def _run(
    name: str,
    preset: Literal["paper", "default"],
    trials: int,
    seed: int,
    out: Path,
    console: Console,
) -> "Result":
    from offmap.paper import EXPERIMENTS, reproduce, stage_count
    from offmap.paper.figures import draw
    from offmap.paper.tables import save, table

    experiment = EXPERIMENTS[name]
    with _progress(console, stage_count(trials, experiment)) as report:
        result = reproduce(experiment, preset, trials=trials, seed=seed, progress=report)
    console.print(table(result))
    console.print(f"{result.seconds:.0f} s. Numbers: {save(result, out)}", highlight=False)
    for figure in draw(result, out):
        console.print(f"Figure: {figure}", highlight=False)
    return result


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield lambda stage: console.print(stage, highlight=False)
        return
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total, completed=-1)

        def report(stage: str) -> None:
            bar.update(task, advance=1, description=stage)

        yield report


def _cache_compilations() -> None:
    """Keep compiled programs between runs, so that the second run of a command starts at once."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(root) / "offmap" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    # JAX and BLAS would otherwise compete for the same few cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
