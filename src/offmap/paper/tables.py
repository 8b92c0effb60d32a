"""Print a result beside the paper's table, and save it."""

import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from offmap.paper.experiment import Result, statistics
from offmap.paper.protocol import ROWS
from offmap.paper.reference import PAPER


def table(result: Result) -> Table:
    """Mean ± spread of every cell; below it the paper's, where the paper has one."""
    name = result.experiment.system.name
    rendered = Table(
        title=f"{result.experiment.horizon}-step prediction error, {name}, preset {result.preset} "
        f"(below: the paper's)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_lines=True,
    )
    for width in (11, 3):
        rendered.add_column("", no_wrap=True, min_width=width)
    shown = [p for p in ("none", "ideal", "approx", "true") if f"GP/{p}" in result.errors["id"]]
    for column in shown:
        rendered.add_column("true Γ" if column == "true" else column, justify="right", no_wrap=True)
    for row in ROWS:
        for dynamics in ("GP", "DGP"):
            cells = []
            for projection in shown:
                column = f"{dynamics}/{projection}"
                found = statistics(result.errors[row.key][column])
                printed = PAPER[name][row.key].get(column)
                ours = f"{short(found['mean'], 3)}±{short(found['std'], 2)}"
                theirs = f"{printed[0]:.2f}±{printed[1]:.2f}" if printed else "–"
                cells.append(f"[bold]{ours}[/bold]\n[dim]{theirs}[/dim]")
            rendered.add_row(row.title if dynamics == "GP" else "", dynamics, *cells)
    return rendered


def short(value: float, digits: int) -> str:
    """A number in few characters, so that the table fits 80 columns."""
    if value >= 1e4:
        return f"{value:.0e}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 0.01:
        return f"{value:.{digits}g}"
    return f"{value:.{digits - 1}g}"


def save(result: Result, directory: Path) -> Path:
    """Write DIR/SYSTEM-PRESET.json and the same table as text; returns the JSON's path."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{result.experiment.system.name}-{result.preset}"
    path = directory / f"{stem}.json"
    partial = path.with_suffix(".json.part")
    partial.write_text(json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
    with (directory / f"{stem}.txt").open("w") as file:
        Console(file=file, width=100, force_terminal=False).print(table(result))
    return path
