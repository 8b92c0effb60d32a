"""`offmap reproduce` and `offmap demo`: the paper's experiments, and those beyond it."""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from offmap.cli.console import console, progress
from offmap.sweeping import Engine, Folder, sweep

if TYPE_CHECKING:
    from offmap.paper import Result
    from offmap.paper.study import AbstractStudy

Preset = Literal["paper", "default"]


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and print our table beside the paper's.

    Example: offmap reproduce unicycle --preset paper --trials 10 --seed 0 --out results

    Example: offmap reproduce ddr --preset default

    Example: offmap reproduce ddr --data recordings/mrclam --preset default

    Example: offmap reproduce beyond --systems tanh bicycle --noise 0 0.01

    Example: offmap reproduce all --engine ray --address 10.0.0.1:6379

    Each trial is kept in a file as soon as it is done: a run that was killed goes on where it was.
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
    models: tuple[str, ...] = ()
    """Who predicts (beyond only): DGP, GP, MLP, "isotropic GP", ARD-GP, "least squares", PySINDy;
    all that are installed if left out."""
    undeclared: bool = False
    """Do not tell which states are angles (unicycle, quadrotor and beyond)."""
    fresh: bool = False
    """Run again what --out already has (not with recordings)."""
    engine: Engine = "serial"
    """Who runs the trials (not with recordings): this process (serial), processes of this machine
    (pool) or a Ray cluster (ray)."""
    workers: int | None = None
    """How many at a time (pool and ray); as many as there are cores if left out. Each holds one
    model: for the quadrotor, 5 GB."""
    address: str | None = None
    """Of the Ray cluster; one on this machine alone if left out."""
    gpus: float = 0.0
    """GPUs of each worker (pool and ray), such as 1 or 0.25."""

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
        if (self.systems or self.noise or self.models) and self.system != "beyond":
            raise ValueError(
                f"--systems, --noise and --models are for beyond; got them with {self.system}. "
                f"Leave them out."
            )
        if self.undeclared and self.system not in ("unicycle", "quadrotor", "beyond"):
            raise ValueError(
                f"--undeclared is for unicycle, quadrotor and beyond; got it with {self.system}. "
                f"Leave it out."
            )
        if self.system == "car" or self.data is not None:
            self._run_recordings()
        elif self.system == "beyond":
            _run_beyond(self)
        else:
            _run_studies(self)

    @property
    def method(self) -> Preset:
        """The preset asked for, or that of the experiment."""
        return self.preset or ("default" if self.system == "beyond" else "paper")

    def _run_recordings(self) -> None:
        from offmap.cli.recordings import run_car, run_recordings

        if self.engine != "serial" or self.fresh:
            raise ValueError(
                "Recordings are scored in one go by this process; got --engine or --fresh with "
                "them. Leave these out."
            )
        if self.system == "ddr" and self.data is not None:
            run_recordings(self, self.data)
        else:
            run_car(self)


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
        from offmap.paper import EXPERIMENTS, reproduce
        from offmap.paper.runs import stage_count
        from offmap.paper.study import cases

        study = _study("unicycle", Reproduce("unicycle", seed=self.seed))
        with progress(stage_count(cases(study).values())) as report:
            result = reproduce(EXPERIMENTS["unicycle"], seed=self.seed, progress=report)
        _show(result, self.out)
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


def _run_studies(asked: Reproduce) -> None:
    """Trials of all systems asked for, in one sweep."""
    from offmap.paper.runs import gather, run_case, stage_count
    from offmap.paper.study import cases, fit_of

    names = ("unicycle", "ddr", "quadrotor") if asked.system == "all" else (asked.system,)
    studies = [_study(name, asked) for name in names]
    every = {name: case for study in studies for name, case in cases(study).items()}
    records = _sweep(asked, run_case, every, asked.out / "trials", stage_count, fit_of)
    for study in studies:
        result = gather(study, records)
        _show(result, asked.out)
        if result.experiment.system.name == "ddr":
            _print_discovery(result)


def _study(name: str, asked: Reproduce) -> "AbstractStudy":
    from offmap.config import Config
    from offmap.paper import EXPERIMENTS, SimulatedStudy

    if name == "ddr":
        from offmap.paper.ddr import DrivenStudy, hardware_config

        trials = 8 if asked.trials is None else asked.trials
        config = hardware_config(asked.method)
        return DrivenStudy(asked.method, config, trials, asked.seed, asked.history)
    return SimulatedStudy(
        EXPERIMENTS[name],
        asked.method,
        Config.preset(asked.method),
        10 if asked.trials is None else asked.trials,
        asked.seed,
        not asked.undeclared,
    )


def _run_beyond(asked: Reproduce) -> None:
    from offmap.paper.baselines import unavailable
    from offmap.paper.beyond import (
        MODELS,
        NOISE,
        Cell,
        Entry,
        cells_folder,
        gather,
        run_entry,
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
    models = asked.models or tuple(model for model in MODELS if model not in unavailable())
    entries = [Entry(cell, model) for cell in cells for model in models]
    found = _sweep(
        asked,
        run_entry,
        {entry.stem: entry for entry in entries},
        cells_folder(asked.out),
        stage_count,
    )
    records = gather(found.values())
    for rendered in tables(records):
        console.print(rendered)
    for reason in dict.fromkeys(why for record in records for why in record["skipped"].values()):
        console.print(f"Left out: {reason}", highlight=False, markup=False)
    summary = summarise(cells[0].family, asked.out)
    console.print(f"Numbers: {summary}; tables: {save(summary)}", highlight=False)


def _sweep(
    asked: Reproduce,
    function: Callable[..., dict[str, Any]],
    cases: dict[str, Any],
    folder: Path,
    stage_count: Callable[[Collection[Any]], int],
    together: Callable[[Any], Hashable] | None = None,
) -> dict[str, Any]:
    """The records of all cases; a single process reports each stage of a case, others the cases."""
    kept = Folder(folder)
    waiting = {name: c for name, c in cases.items() if asked.fresh or not kept.holds(name)}
    if len(waiting) < len(cases):
        done = len(cases) - len(waiting)
        console.print(
            f"{done} of {len(cases)} cases are in {folder} already; --fresh runs them again",
            highlight=False,
        )
    run = partial(sweep, cases=cases, out=folder, together=together, fresh=asked.fresh)
    if asked.engine == "serial":
        with progress(stage_count(waiting.values())) as report:
            return run(partial(function, progress=report), engine="serial")
    with progress(len(waiting)) as report:
        return run(
            function,
            engine=asked.engine,
            workers=asked.workers,
            address=asked.address,
            gpus=asked.gpus,
            progress=report,
        )


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
