"""Write the tables and figures of docs/accuracy.md from the records in docs/results.

    offmap reproduce unicycle --preset paper --out docs/results     # and so on
    offmap reproduce beyond --out docs/results
    python benchmarks/unseen.py --out docs/results/unseen-default-seed0.json
    python benchmarks/states.py --out docs/results/states-default.json
    python benchmarks/accuracy_page.py

Text outside the markers stays as it is, and so does what has no records.
"""

import json
from pathlib import Path

from dots import ORACLE, OTHERS, OURS, draw
from states import figure as states_figure
from states import table as states_table
from unseen import table as unseen_table

from offmap.paper.beyond import COLUMNS as BEYOND
from offmap.paper.cases import right_rows
from offmap.paper.protocol import ROWS
from offmap.paper.reference import PAPER

_DRAWN = {
    "DGP/approx": ("offmap", OURS),
    "DGP/true": ("with the true constraint", ORACLE),
    "ARD-GP": ("plain GP", OTHERS[0]),
    "least squares": ("least squares on sines", OTHERS[1]),
}
DOCS = Path(__file__).resolve().parent.parent / "docs"
COLUMNS = ("GP/none", "GP/ideal", "GP/approx", "DGP/none", "DGP/ideal", "DGP/approx", "DGP/true")
OFFLINE = "DGP/offline"


def table(record: dict) -> str:
    """One record as Markdown: mean [95 % interval], and the paper's mean."""
    lines = [
        f"#### {record['system']}, preset {record['preset']}, seed {record['seed']}, "
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


def errors_beyond(cells: list[dict]) -> str:
    """Cells of one noise level: mean [95 % interval]; not bold where kept of an older version."""
    cell = cells[0]["cell"]
    told = "" if cell["declare_angles"] else ", angles not declared"
    lines = [
        f"#### {cell['noise']:.1%} noise on all data, preset {cell['preset']}{told}, seed "
        f"{cell['seed']}, {cell['trials']} trials × 5 rollouts\n",
        "| | " + " | ".join(BEYOND) + " |",
        "|---" * (len(BEYOND) + 1) + "|",
    ]
    for record in cells:
        texts = []
        for column in BEYOND:
            found = record["columns"].get(column)
            if found is None:
                texts.append("–")
                continue
            weight = "" if column in record.get("older", ()) else "**"
            low, high = found["ci95"]
            texts.append(f"{weight}{found['mean']:.3g}{weight} [{low:.2g}, {high:.2g}]")
        lines.append(f"| {record['cell']['system']} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def discoveries_beyond(records: list[dict]) -> str:
    """How often the right structure was found, over all seeds of a preset."""
    groups: dict[tuple, list[dict]] = {}
    for record in (record for record in records if record["found"]):
        cell = record["cell"]
        key = (cell["preset"], cell["declare_angles"], cell["noise"], cell["system"])
        groups.setdefault(key, []).append(record["found"])
    lines = [
        "#### Structure found, out of all seeds\n",
        "| system | noise | preset | right c | right rows (≤ 1e-3 rad) | worst angle "
        "| right inputs | right inputs in the tangent frame | structure used |",
        "|---" * 9 + "|",
    ]
    for (preset, told, noise, system), found in groups.items():
        right_c = [one["c"] == one["c_true"] for one in found]
        angles = [one["angle"] for one in found if one["angle"] is not None]
        rows = [one["c"] == one["c_true"] and (one["angle"] or 0.0) <= 1e-3 for one in found]
        judged = [one["kept_in_tangent_frame_right"] for one in found]
        judged = [verdict for verdict in judged if verdict is not None]
        used = sorted({one["used"] or "–" for one in found})
        texts = [
            system,
            f"{noise:.1%}",
            preset if told else f"{preset}, angles not declared",
            f"{sum(right_c)}/{len(found)}",
            f"{sum(rows)}/{len(found)}",
            f"{max(angles):.1e}" if angles else "–",
            f"{sum(one['kept_right'] for one in found)}/{len(found)}",
            f"{sum(judged)}/{len(judged)}" if judged else "–",
            ", ".join(used),
        ]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def discovery(records: list[dict]) -> str:
    """How often the right structure was found, from the records of `benchmarks/discovery.py`."""
    lines = [
        "| system | noise | seeds | right rows | worst angle [rad] | inputs | tangent inputs |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        seeds = record["seeds"]
        angles = [s["angle"] for s in seeds if s["angle"] is not None]
        in_frame = [s["kept_in_tangent_frame_right"] for s in seeds]
        judged = [found for found in in_frame if found is not None]
        cells = [
            record["system"],
            f"{record['noise']:.1%}",
            str(len(seeds)),
            f"{sum(map(right_rows, seeds))}/{len(seeds)}",
            f"{max(angles):.0e}" if angles else "–",
            f"{sum(s['kept_right'] for s in seeds)}/{len(seeds)}",
            f"{sum(judged)}/{len(judged)}" if judged else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def beyond(paths: list[Path]) -> str:
    """All tables beyond the paper, from the summaries of `offmap reproduce beyond`."""
    parts, everything = [], []
    for path in paths:
        cells = json.loads(path.read_text())["cells"]
        everything += cells
        for noise in dict.fromkeys(cell["cell"]["noise"] for cell in cells):
            shown = [cell for cell in cells if cell["cell"]["noise"] == noise]
            parts.append(errors_beyond(shown))
    return "\n".join([*parts, discoveries_beyond(everything)])


def beyond_figure(paths: list[Path]) -> None:
    """Errors of the best known models on every system at every level of noise."""
    cells = [cell for path in paths for cell in json.loads(path.read_text())["cells"]]
    systems = list(dict.fromkeys(cell["cell"]["system"] for cell in cells))
    noises = list(dict.fromkeys(cell["cell"]["noise"] for cell in cells))

    def error(system: str, noise: float, column: str) -> list[float]:
        wanted = (system, noise)
        some = [c["columns"] for c in cells if (c["cell"]["system"], c["cell"]["noise"]) == wanted]
        return [columns[column]["mean"] for columns in some if column in columns]

    path = DOCS / "figures" / "beyond.png"
    draw(path, systems, noises, _DRAWN, error, "summed error of 100 steps", "noise on all data")


def fill(page: str, marker: str, text: str) -> str:
    """The page with the text between <!-- marker --> and <!-- end of marker -->."""
    begin, end = f"<!-- {marker} -->\n", f"<!-- end of {marker} -->\n"
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main() -> None:
    """Replace what stands between the markers."""
    page = DOCS / "accuracy.md"
    text = page.read_text()
    further = sorted((DOCS / "results").glob("beyond-*.json"))
    found = sorted((DOCS / "results").glob("discovery-*.json"))
    unseen = sorted((DOCS / "results").glob("unseen-*.json"))
    states = sorted((DOCS / "results").glob("states-*.json"))
    draws = sorted((DOCS / "results").glob("draws-*.json"))  # of docs/recordings.md
    others = {*further, *found, *unseen, *states, *draws}
    paths = [path for path in sorted((DOCS / "results").glob("*.json")) if path not in others]
    if paths:
        records = [json.loads(path.read_text()) for path in paths]
        text = fill(text, "tables", "\n".join(map(table, records)))
    if further:
        text = fill(text, "beyond", beyond(further))
        beyond_figure(further)
    if found:
        records = [record for path in found for record in json.loads(path.read_text())]
        text = fill(text, "discovery", discovery(records) + "\n")
    if unseen:
        records = [record for path in unseen for record in json.loads(path.read_text())]
        text = fill(text, "unseen", unseen_table(records) + "\n")
    if states:
        records = [record for path in states for record in json.loads(path.read_text())]
        text = fill(text, "states", states_table(records) + "\n")
        states_figure(records, DOCS / "figures" / "states.png")
    page.write_text(text)


if __name__ == "__main__":
    main()
