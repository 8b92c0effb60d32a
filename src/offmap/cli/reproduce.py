"""`offmap reproduce` and `offmap demo`: the paper's experiments, and those beyond it."""

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
    Example: offmap reproduce beyond --systems tanh bicycle --noise 0 0.01
    """

    system: Annotated[
        Literal["unicycle", "ddr", "car", "quadrotor", "all", "beyond"], tyro.conf.Positional
    ]
    """Which experiment. ddr: a differential-drive robot in MuJoCo, or recordings of one. car:
    recordings of a car. all: unicycle, ddr and quadrotor. beyond: harder systems, noise on all
    data, and baselines."""
    preset: Preset | None = None
    """paper: the paper's method, repaired where its text cannot work. default: the best we know.
    If left out, default for beyond and paper for the others."""
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
    systems: tuple[str, ...] = ()
    """Which systems (beyond only); all if left out."""
    noise: tuple[float, ...] = ()
    """Noise levels, as shares of each component's spread (beyond only); 0 0.001 0.01 0.05 if left
    out."""
    undeclared: bool = False
    """Do not tell which states are angles (unicycle, quadrotor and beyond)."""
    fresh: bool = False
    """Run again what --out already has (beyond only)."""

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
        if self.system == "beyond":
            _run_beyond(self)
            return
        if self.systems or self.noise or self.fresh:
            raise ValueError(
                f"--systems, --noise and --fresh are for beyond; got them with {self.system}. "
                f"Leave them out."
            )
        if self.undeclared and self.system not in ("unicycle", "quadrotor"):
            raise ValueError(
                f"--undeclared is for unicycle, quadrotor and beyond; got it with {self.system}. "
                f"Leave it out."
            )
        names = ("unicycle", "ddr", "quadrotor") if self.system == "all" else (self.system,)
        for name in names:
            self._run(name)

    @property
    def method(self) -> Preset:
        """The preset asked for, or that of the experiment."""
        return self.preset or ("default" if self.system == "beyond" else "paper")

    def _run(self, name: str) -> None:
        if name == "car":
            _run_car(self)
        elif name == "ddr" and self.data is not None:
            _run_recordings(self, self.data)
        elif name == "ddr":
            _run_ddr(self)
        else:
            trials = 10 if self.trials is None else self.trials
            _run_simulated(name, self.method, trials, self.seed, self.out, not self.undeclared)


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


def _run_simulated(
    name: str, preset: Preset, trials: int, seed: int, out: Path, declare_angles: bool = True
) -> "Result":
    from offmap.paper import EXPERIMENTS, reproduce, stage_count

    experiment = EXPERIMENTS[name]
    with progress(stage_count(trials, experiment)) as report:
        result = reproduce(
            experiment,
            preset,
            trials=trials,
            seed=seed,
            declare_angles=declare_angles,
            progress=report,
        )
    _show(result, out)
    return result


def _run_ddr(asked: Reproduce) -> None:
    from offmap.paper.ddr import reproduce_ddr, stage_count

    trials = 8 if asked.trials is None else asked.trials
    with progress(stage_count(trials)) as report:
        result = reproduce_ddr(
            asked.method, trials=trials, seed=asked.seed, history=asked.history, progress=report
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
            asked.method,
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
            asked.method,
            seed=asked.seed,
            history=asked.history,
            progress=report,
        )
    _show_scores(scores, asked.out)


def _run_beyond(asked: Reproduce) -> None:
    from offmap.paper.beyond import (
        NOISE,
        Cell,
        complete_cell,
        is_finished,
        stage_count,
        summarise,
    )
    from offmap.paper.beyond_tables import save, tables
    from offmap.paper.cases import CASES

    trials = 10 if asked.trials is None else asked.trials
    cells = [
        Cell(system, noise, asked.method, trials, asked.seed, not asked.undeclared)
        for noise in asked.noise or NOISE
        for system in asked.systems or CASES
    ]
    waiting = [cell for cell in cells if asked.fresh or not is_finished(cell, asked.out)]
    if len(waiting) < len(cells):
        done = len(cells) - len(waiting)
        console.print(f"{done} of {len(cells)} cells are in {asked.out} already", highlight=False)
    with progress(len(waiting) * stage_count(trials)) as report:
        for cell in waiting:
            complete_cell(cell, asked.out, fresh=asked.fresh, progress=report)
    records = [complete_cell(cell, asked.out) for cell in cells]
    for rendered in tables(records):
        console.print(rendered)
    for reason in dict.fromkeys(why for record in records for why in record["skipped"].values()):
        console.print(f"Left out: {reason}", highlight=False, markup=False)
    summary = summarise(cells[0].family, asked.out)
    console.print(f"Numbers: {summary}; tables: {save(summary)}", highlight=False)


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
