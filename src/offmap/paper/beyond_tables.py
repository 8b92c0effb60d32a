"""Print the cells beyond the paper: a table of errors and one of discoveries per noise level."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from offmap.paper.beyond import COLUMNS
from offmap.paper.tables import short

_HEADS = {  # five letters a line, so that a table fits 80 columns
    "DGP/approx": "DGP\nappr.",
    "DGP/offline": "DGP\noffl.",
    "MLP/approx": "MLP\nappr.",
    "isotropic GP": "GP\nisotr",
    "ARD-GP": "GP\nARD",
    "least squares": "least\nsq.",
    "PySINDy": "Py-\nSINDy",
}


def tables(records: list[dict[str, Any]]) -> Iterator[Table]:
    """For each noise level, mean errors of every column and what was discovered."""
    for noise in dict.fromkeys(record["cell"]["noise"] for record in records):
        shown = [record for record in records if record["cell"]["noise"] == noise]
        yield _errors(noise, shown)
        yield _discoveries(noise, shown)


def _errors(noise: float, records: list[dict[str, Any]]) -> Table:
    rendered = _table(f"100-step prediction error beyond the paper, {noise:.1%} noise on all data")
    for column in COLUMNS:
        head = _HEADS.get(column, column.replace("/", "\n"))
        rendered.add_column(head, justify="right", no_wrap=True, min_width=5)
    for record in records:
        cells = [record["columns"].get(column) for column in COLUMNS]
        texts = [short(cell["mean"], 2) if cell else "–" for cell in cells]
        rendered.add_row(record["cell"]["system"], f"[bold]{texts[0]}[/bold]", *texts[1:])
    return rendered


def _discoveries(noise: float, records: list[dict[str, Any]]) -> Table:
    rendered = _table(f"What was discovered, {noise:.1%} noise on all data")
    for head in ("c", "true c", "largest angle", "inputs", "structure", "inputs in tangent frame"):
        rendered.add_column(head)
    for record in records:
        found = record["found"]
        if found is None:
            continue
        in_frame = found["kept_in_tangent_frame"]
        rendered.add_row(
            record["cell"]["system"],
            str(found["c"]),
            str(found["c_true"]),
            "–" if found["angle"] is None else f"{found['angle']:.1e}",
            _verdict(found["kept_right"], found["kept"]),
            found["used"] or "–",
            "–" if in_frame is None else _verdict(found["kept_in_tangent_frame_right"], in_frame),
        )
    return rendered


def _verdict(right: bool | None, names: list[str]) -> str:
    """Right, or what was found instead."""
    return "right" if right else f"{'' if right is None else 'wrong: '}{', '.join(names)}"


def _table(title: str) -> Table:
    rendered = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    rendered.add_column("", no_wrap=True)
    return rendered


def save(path: Path) -> Path:
    """Write the tables of a summary beside it as text."""
    text = path.with_suffix(".txt")
    with text.open("w") as file:
        out = Console(file=file, width=120, force_terminal=False)
        for rendered in tables(json.loads(path.read_text("utf-8"))["cells"]):
            out.print(rendered)
    return text
