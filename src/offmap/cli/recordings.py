"""The experiments of `offmap reproduce` on recordings of real robots."""

from pathlib import Path
from typing import TYPE_CHECKING

from offmap.cli.console import console, progress
from offmap.cli.reproduce import Reproduce

if TYPE_CHECKING:
    from offmap.paper.hardware import Scores


def run_recordings(asked: Reproduce, folder: Path) -> None:
    """Score every variant on recordings of a differential drive."""
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


def run_car(asked: Reproduce) -> None:
    """Score every variant on recordings of a car."""
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


def _show_scores(scores: "Scores", out: Path) -> None:
    from offmap.paper.scores import draw, save, table

    console.print(table(scores))
    console.print(f"{scores.seconds:.0f} s. Numbers: {save(scores, out)}", highlight=False)
    console.print(f"Figure: {draw(scores, out)}", highlight=False)
    console.print(scores.model.summary(), highlight=False, soft_wrap=True)
