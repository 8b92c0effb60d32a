"""Print, save and draw scores on real recordings."""

import json
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from offmap.paper.experiment import statistics
from offmap.paper.hardware import ROWS, Scores

_SHOWN = {
    "GP/none": "GP none",
    "DGP/none": "DGP none",
    "DGP/ideal": "DGP ideal",
    "DGP/approx": "DGP approx",
    "analytic": "analytic",
    "still": "still",
}


def table(scores: Scores) -> Table:
    """Mean error of each column, below it a bootstrap 95 % interval over windows."""
    rendered = Table(
        title=f"40-step prediction error, {scores.system} recordings, preset {scores.preset} "
        f"(below: 95 % interval of the mean)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_lines=True,
    )
    rendered.add_column("", no_wrap=True)
    rendered.add_column("n", justify="right")
    columns = [column for column in _SHOWN if column in next(iter(scores.errors.values()))]
    for column in columns:
        rendered.add_column(_SHOWN[column], justify="right", no_wrap=True)
    for row, cells in scores.errors.items():
        found = {column: statistics(cells[column][:, None]) for column in columns}
        count = str(found[columns[0]]["n"])
        texts = [
            f"[bold]{cell['mean']:.3g}[/bold]\n[dim]{cell['ci95'][0]:.2g}–{cell['ci95'][1]:.2g}[/dim]"
            for cell in found.values()
        ]
        rendered.add_row(ROWS.get(row, row), count, *texts)
    return rendered


def save(scores: Scores, directory: Path) -> Path:
    """Write DIR/SYSTEM-recordings-PRESET.json and the table as text; returns the JSON's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{_stem(scores)}.json"
    partial = path.with_suffix(".json.part")
    partial.write_text(json.dumps(scores.to_json(), indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
    with path.with_suffix(".txt").open("w") as file:
        Console(file=file, width=100, force_terminal=False).print(table(scores))
    return path


def draw(scores: Scores, directory: Path) -> Path:
    """Fig. 5 for recordings: OOD windows as driven and as predicted, each from its own start."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    true, predicted = scores.example
    lines = {
        "GP/none": ("None (GP)", "#009E73"),
        "analytic": ("analytic unicycle", "#0072B2"),
        "DGP/approx": ("Approximate (DGP)", "#D55E00"),
    }
    shown = {column: style for column, style in lines.items() if column in predicted}
    figure, axes = plt.subplots(2, 4, figsize=(10.5, 5.4))
    for i, plane in enumerate(axes.flat):
        plane.set_aspect("equal", adjustable="datalim")
        plane.tick_params(labelsize=7)
        if i >= len(true):
            plane.axis("off")
            continue
        plane.plot(*true[i, :, :2].T, color="black", linewidth=2.5, label="_true" if i else "true")
        plane.plot(*true[i, 0, :2], "o", color="black", markersize=4)
        for column, (label, colour) in shown.items():
            error = np.linalg.norm(predicted[column][i] - true[i], axis=-1).sum()
            text = f"{label}" if i == 0 else f"_{label}"
            plane.plot(*predicted[column][i, :, :2].T, "--", color=colour, label=text)
            if column == "DGP/approx":
                plane.set_title(f"error {error:.2f}", fontsize=8)
    figure.supxlabel("px [m]", fontsize=9)
    figure.supylabel("py [m]", fontsize=9)
    figure.legend(loc="upper center", ncol=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    path = directory / f"{_stem(scores)}-trajectories.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _stem(scores: Scores) -> str:
    return f"{scores.system}-recordings-{scores.preset}"
