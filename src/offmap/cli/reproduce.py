"""`offmap reproduce` and `offmap demo`: the paper's experiments."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from offmap.cli.console import console, progress

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

    def run(self) -> None:
        """Run the experiment."""
        names = ("unicycle", "quadrotor") if self.system == "all" else (self.system,)
        for name in names:
            _run(name, self.preset, self.trials, self.seed, self.out)


@dataclass(frozen=True)
class Demo:
    """Fit the unicycle, say what was discovered, print the table beside the paper's, write a page.

    Example: offmap demo --out results/demo
    """

    seed: int = 0
    """Equal seeds give equal results."""
    out: Path = Path("results/demo")
    """Folder for the JSON, the table as text and the figures."""

    def run(self) -> None:
        """Run the demonstration."""
        result = _run("unicycle", "paper", 10, self.seed, self.out)
        model = result.stages[True].models["DGP"]
        console.print("\n[bold]What was discovered from the data alone[/bold]")
        console.print(model.summary(), highlight=False, soft_wrap=True)
        page = self.out / "unicycle.html"
        try:
            from offmap.report import write

            write(model, page, title="A unicycle, by the paper's method")
        except ValueError as error:  # plotly is an extra
            console.print(f"No page: {error}", highlight=False)
        else:
            console.print(f"\nA page about it, to open in a browser: {page}", highlight=False)


def _run(
    name: str, preset: Literal["paper", "default"], trials: int, seed: int, out: Path
) -> "Result":
    from offmap.paper import EXPERIMENTS, reproduce, stage_count
    from offmap.paper.figures import draw
    from offmap.paper.tables import save, table

    experiment = EXPERIMENTS[name]
    with progress(stage_count(trials, experiment)) as report:
        result = reproduce(experiment, preset, trials=trials, seed=seed, progress=report)
    console.print(table(result))
    console.print(f"{result.seconds:.0f} s. Numbers: {save(result, out)}", highlight=False)
    for figure in draw(result, out):
        console.print(f"Figure: {figure}", highlight=False)
    return result
