"""How often the right structure is found: inputs, number of constraints, rows, tangent inputs.

    python benchmarks/discovery.py --systems unicycle bicycle --noise 0 0.001 0.01 --seeds 10

The data are the offline data of `offmap reproduce beyond`, with its noise on all that is measured.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import offmap
from offmap.paper.beyond import Cell, simulate
from offmap.paper.cases import CASES, right_rows


def judge(name: str, noise: float, seed: int, declared: bool) -> dict[str, Any]:
    """Fit the default preset to offline data and compare what it found with what is true."""
    case = CASES[name]
    cell = Cell(name, noise, trials=1, seed=seed, declare_angles=declared)
    offline, _ = simulate(case, cell)
    return {"seed": seed, **case.judge(offmap.fit(offline, seed=seed))}


def main() -> None:
    """Print one line per case and save every judgement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=list(CASES))
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.001, 0.01])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--undeclared", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/discovery.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    records = []
    for name in arguments.systems:
        for noise in arguments.noise:
            found = []
            records.append({"system": name, "noise": noise, "seeds": found})
            for seed in seeds:
                found.append(judge(name, noise, seed, not arguments.undeclared))
                arguments.out.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
            in_frame = [f["kept_in_tangent_frame_right"] for f in found]
            judged = [right for right in in_frame if right is not None]
            print(
                f"{name:11s} noise {noise:<6g} right c {sum(f['c'] == f['c_true'] for f in found)},"
                f" right rows {sum(map(right_rows, found))},"
                f" inputs {sum(f['kept_right'] for f in found)} of {len(found)};"
                f" tangent inputs {sum(judged)} of {len(judged)};"
                f" worst angle {max((f['angle'] or 0.0) for f in found):.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
