"""Write the tables of docs/accuracy.md from the records in docs/results.

    offmap reproduce unicycle --preset paper --out docs/results     # and so on
    python benchmarks/accuracy_page.py

Text outside the markers stays as it is.
"""

import json
from pathlib import Path

from offmap.paper.protocol import ROWS
from offmap.paper.reference import PAPER

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"
COLUMNS = ("GP/none", "GP/ideal", "GP/approx", "DGP/none", "DGP/ideal", "DGP/approx", "DGP/true")
OFFLINE = "DGP/offline"


def table(record: dict) -> str:
    """One record as Markdown: mean [95 % interval], and the paper's mean."""
    lines = [
        f"### {record['system']}, preset {record['preset']}, seed {record['seed']}, "
        f"{record['trials']} trials × 5 rollouts ({record['seconds']:.0f} s)\n",
        "| | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for row in ROWS:
        cells = []
        for column in COLUMNS:
            cell = record["rows"][row.key][column]
            low, high = cell["ci95"]
            printed = PAPER[record["system"]][row.key].get(column)
            beside = f"; paper {printed[0]:g}" if printed else ""
            cells.append(f"**{cell['mean']:.3g}** [{low:.2g}, {high:.2g}]{beside}")
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    offline = [record["rows"][row.key].get(OFFLINE) for row in ROWS]
    if all(offline):
        means = ", ".join(f"{cell['mean']:.3g}" for cell in offline)
        lines.append(f"\nDGP/approx without the online data: {means}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replace what stands between the markers."""
    page = DOCS / "accuracy.md"
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    records = [json.loads(path.read_text()) for path in sorted((DOCS / "results").glob("*.json"))]
    page.write_text(before + BEGIN + "\n".join(map(table, records)) + END + after)


if __name__ == "__main__":
    main()
