"""Recorded robots, over draws of the windows that are fitted to (docs/recordings.md).

    python benchmarks/draws.py --data recordings/mrclam --jobs 2
    python benchmarks/draws.py --data recordings/mrclam --table --figure docs/figures/draws.png

The protocol of `offmap reproduce ddr --data`, without online data: windows of 40 steps in one part
of the arena are drawn by the seed, tests are all windows elsewhere. Errors are summed over 40
steps, beside those of the analytic unicycle on lagged commands and of the dynamics without a
constraint.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cells import add_options, records
from dots import ORACLE, OTHERS, OURS
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import offmap
from offmap.paper.experiment import distances
from offmap.paper.hardware import analytic, dataset, hardware_config, windows_trial
from offmap.paper.recordings import cut_roles, read_mrclam

ROBOTS = ("Robot1", "Robot2", "Robot3", "Robot4", "Robot5")
_CONTROLS = ("omega", "v")


@dataclass(frozen=True)
class Cell:
    """One robot and one draw of its windows."""

    data: Path
    robot: str
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.robot}-seed{self.seed}"


def judge(cell: Cell) -> dict:
    """Fit one draw and predict every window elsewhere; a draw that is refused says why."""
    _, recordings = read_mrclam(cell.data, cell.robot)
    cut = cut_roles(recordings, cell.seed, history=0)
    record = {"robot": cell.robot, "seed": cell.seed, "windows": len(cut.offline)}
    data = dataset(cut.offline, _CONTROLS, 0)
    tests = windows_trial(data.trajectories[0], cut.outside)
    began = time.perf_counter()
    try:
        model = offmap.fit(data, config=hardware_config("default"), seed=cell.seed)
    except ValueError as error:
        return {**record, "refused": str(error)}

    def off(states: np.ndarray) -> float:
        return float(distances([tests], [states]).sum(axis=-1).mean())

    none = model.with_constraint(None)
    return {
        **record,
        "seconds": round(time.perf_counter() - began, 1),
        "ours": off(model.rollout(tests.test_starts, tests.test_controls)),
        "none": off(none.rollout(tests.test_starts, tests.test_controls)),
        "analytic": off(analytic(tests)),
        "used": model.choices.used,
        "kept": list(model.retained.tangent or model.retained.dynamics),
        "equations": [str(equation) for equation in model.constraints.equations],
    }


def table(found: list[dict]) -> str:
    """One line for each robot."""
    lines = [
        "| | errors of the draws | analytic | mean over analytic | worst | none, mean |",
        "|---" * 6 + "|",
    ]
    for robot in ROBOTS:
        some = [r for r in found if r["robot"] == robot and "ours" in r]
        if not some:
            continue
        ours, analytic = np.array([r["ours"] for r in some]), some[0]["analytic"]
        errors = ", ".join(f"{error:.2f}" for error in ours)
        none = np.mean([r["none"] for r in some])
        lines.append(
            f"| {robot} ({some[0]['windows']} windows) | {errors} | {analytic:.2f} | "
            f"{ours.mean() / analytic:.2f} | {ours.max() / analytic:.2f} | {none:.1f} |"
        )
    return "\n".join(lines)


def draw(found: list[dict], path: Path) -> None:
    """Every draw as a dot, beside the analytic model."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    kinds = (
        ("none", "no constraint", OTHERS[0]),
        ("ours", "offmap", OURS),
        ("analytic", "the analytic unicycle, lag known", {**ORACLE, "s": 700}),
    )
    for kind, label, style in kinds:
        some = [r for r in found if kind in r]
        places = [ROBOTS.index(r["robot"]) + 0.04 * (r["seed"] - 3) for r in some]
        if kind == "analytic":
            places = [ROBOTS.index(r["robot"]) for r in some]
        axes.scatter(places, [r[kind] for r in some], **style)
        axes.scatter([], [], label=label, **{**style, "s": min(style["s"], 110)})
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.set_xticks(range(len(ROBOTS)), ROBOTS)
    axes.set_ylabel("summed error of 40 steps")
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=8, loc="outside upper center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run what has not been run, save every record and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the recordings")
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(7)))
    parser.add_argument("--figure", type=Path, help="also draw the errors into this file")
    add_options(parser, "draws")
    arguments = parser.parse_args()
    wanted = [
        Cell(arguments.data, robot, seed) for robot in arguments.robots for seed in arguments.seeds
    ]
    found = records(judge, wanted, arguments)
    print(table(found))
    if arguments.figure is not None:
        draw(found, arguments.figure)


if __name__ == "__main__":
    main()
