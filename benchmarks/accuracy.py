"""Run the paper's protocols over presets and seeds and keep every record.

    python benchmarks/accuracy.py --runs unicycle:paper:0 unicycle:default:0 --out results/a.json

A run is SYSTEM:PRESET:SEED, with ":undeclared" behind it if the angles are not to be told.
"""

import argparse
import json
from pathlib import Path

import offmap  # noqa: F401  (switches JAX to double precision)
from offmap.paper import EXPERIMENTS, reproduce


def main() -> None:
    """Run and save after each run, so that an interrupted batch is not lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", required=True)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    records = []
    for run in arguments.runs:
        system, preset, seed, *told = run.split(":")
        result = reproduce(
            EXPERIMENTS[system],
            preset,
            trials=arguments.trials,
            seed=int(seed),
            declare_angles=told != ["undeclared"],
        )
        records.append({"run": run, **result.to_json()})
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(records, indent=1, ensure_ascii=False))
        means = {
            row: {column: f"{cell['mean']:.3g}" for column, cell in cells.items()}
            for row, cells in records[-1]["rows"].items()
        }
        print(run, f"{result.seconds:.0f} s", json.dumps(means), flush=True)


if __name__ == "__main__":
    main()
