"""`offmap reproduce` and `offmap demo`: the paper's experiments."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from offmap.cli.console import console, progress

if TYPE_CHECKING:
    from offmap.paper import Result
    from offmap.paper.hardware import Scores

Preset = Literal["paper", "default"]


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and print our table beside the paper's.

    Example: offmap reproduce unicycle --preset paper --trials 10 --seed 0 --out results
    Example: offmap reproduce ddr --preset default
    Example: offmap reproduce ddr --data recordings/mrclam --preset default
    """

    system: Annotated[Literal["unicycle", "ddr", "car", "quadrotor", "all"], tyro.conf.Positional]
    """Which experiment. ddr: a differential-drive robot in MuJoCo, or recordings of one. car:
    recordings of a car."""
    preset: Preset = "paper"
    """paper: the paper's method, repaired where its text cannot work. default: the best we know."""
    trials: int | None = None
    """Online data sets: 8 for ddr as in the paper, else 10."""
    seed: int = 0
    """Equal seeds give equal results."""
    out: Path = Path("results")
    """Folder for the JSON, the table as text and the figures."""
    data: Path | None = None
    """Folder with real recordings (ddr and car only)."""
    robot: str | None = None
    """Which robot of the folder, such as Robot3; the one with the most recordings if left out. For
    the car: part of the name of the test file."""
    history: int = 0
    """Past commands that the dynamics see as further inputs (ddr and car only)."""

    def run(self) -> None:
        """Run the experiment."""
        if self.data is not None and self.system not in ("ddr", "car"):
            raise ValueError(
                f"Recordings are for ddr and car; got --data with {self.system}. Leave --data out."
            )
        if self.history and self.system not in ("ddr", "car"):
            raise ValueError(
                f"Past commands are for ddr and car; got --history with {self.system}. Leave it "
                f"out."
            )
        names = ("unicycle", "ddr", "quadrotor") if self.system == "all" else (self.system,)
        for name in names:
            self._run(name)

    def _run(self, name: str) -> None:
        if name == "car":
            _run_car(self)
        elif name == "ddr" and self.data is not None:
            _run_recordings(self, self.data)
        elif name == "ddr":
            _run_ddr(self)
        else:
            trials = 10 if self.trials is None else self.trials
            _run_simulated(name, self.preset, trials, self.seed, self.out)


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
        result = _run_simulated("unicycle", "paper", 10, self.seed, self.out)
        _print_discovery(result)
        page = self.out / "unicycle.html"
        try:
            from offmap.report import write

            write(
                result.stages[True].models["DGP"], page, title="A unicycle, by the paper's method"
            )
        except ValueError as error:  # plotly is an extra
            console.print(f"No page: {error}", highlight=False)
        else:
            console.print(f"\nA page about it, to open in a browser: {page}", highlight=False)


def _run_simulated(name: str, preset: Preset, trials: int, seed: int, out: Path) -> "Result":
    from offmap.paper import EXPERIMENTS, reproduce, stage_count

    experiment = EXPERIMENTS[name]
    with progress(stage_count(trials, experiment)) as report:
        result = reproduce(experiment, preset, trials=trials, seed=seed, progress=report)
    _show(result, out)
    return result


def _run_ddr(asked: Reproduce) -> None:
    from offmap.paper.ddr import reproduce_ddr, stage_count

    trials = 8 if asked.trials is None else asked.trials
    with progress(stage_count(trials)) as report:
        result = reproduce_ddr(
            asked.preset, trials=trials, seed=asked.seed, history=asked.history, progress=report
        )
    _show(result, asked.out)
    _print_discovery(result)


def _run_recordings(asked: Reproduce, folder: Path) -> None:
    from offmap.paper.hardware import score_recordings, stage_count
    from offmap.paper.recordings import cut_roles, describe, read_mrclam

    robot, recordings = read_mrclam(folder, asked.robot)
    cut = cut_roles(recordings, asked.seed, history=asked.history)
    about = describe(robot, recordings, cut)
    for line in about["read"]:
        console.print(line, highlight=False, soft_wrap=True)
    trials = 8 if asked.trials is None else asked.trials
    with progress(stage_count()) as report:
        scores = score_recordings(
            cut,
            about,
            asked.preset,
            trials=trials,
            seed=asked.seed,
            history=asked.history,
            progress=report,
        )
    _show_scores(scores, asked.out)


def _run_car(asked: Reproduce) -> None:
    from offmap.paper.car import choose_files, read_drives, score_car
    from offmap.paper.recordings import describe

    if asked.data is None:
        raise ValueError("The car is known by recordings alone; got no --data. Name their folder.")
    train, test = choose_files(asked.data, asked.robot or "free_driving_20240916_10_01_01")
    fitted, unseen = read_drives(train, test)
    about = describe("car", [*fitted, unseen])
    for line in about["read"]:
        console.print(line, highlight=False, soft_wrap=True)
    with progress(6) as report:
        scores = score_car(
            fitted,
            unseen,
            about,
            asked.preset,
            seed=asked.seed,
            history=asked.history,
            progress=report,
        )
    _show_scores(scores, asked.out)


def _show_scores(scores: "Scores", out: Path) -> None:
    from offmap.paper.scores import draw, save, table

    console.print(table(scores))
    console.print(f"{scores.seconds:.0f} s. Numbers: {save(scores, out)}", highlight=False)
    console.print(f"Figure: {draw(scores, out)}", highlight=False)
    console.print(scores.model.summary(), highlight=False, soft_wrap=True)


def _show(result: "Result", out: Path) -> None:
    from offmap.paper.figures import draw
    from offmap.paper.tables import save, table

    console.print(table(result))
    console.print(f"{result.seconds:.0f} s. Numbers: {save(result, out)}", highlight=False)
    for figure in draw(result, out):
        console.print(f"Figure: {figure}", highlight=False)


def _print_discovery(result: "Result") -> None:
    console.print("\n[bold]What was discovered from the data alone[/bold]")
    model = result.stages[True].models["DGP"]
    console.print(model.summary(), highlight=False, soft_wrap=True)
