"""`offmap bench`: how fast we are, beside the peers and the machine's limits."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from offmap.cli.console import console, progress, say, warn, write_json

_STAGES = 30


@dataclass(frozen=True)
class Bench:
    """Time offmap and its peers side by side on the same data, against this machine's limits.

    Example: offmap bench --quick --only predict rollouts

    Example: offmap bench --quick --gate --baseline benchmarks/baseline.json
    """

    quick: bool = False
    """Fewer turns, the small problems only: for a check on every change."""
    gate: bool = False
    """Exit with 1 if a ratio is worse than the baseline's beyond the metric's tolerance."""
    only: tuple[str, ...] = ()
    """Measure these only: limits, projection, fit, predict, rollouts, growth."""
    out: Path = Path("results/bench")
    """Folder for the JSON and the figure."""
    baseline: Path = Path("benchmarks/baseline.json")
    """The JSON of an earlier run, with whose ratios the gate compares."""

    def run(self) -> None:
        """Measure, print, save, judge."""
        from offmap.bench import judge, read_baseline, run
        from offmap.bench.figures import draw
        from offmap.bench.tables import tables

        known = read_baseline(self.baseline) if self.gate else {}
        with tempfile.TemporaryDirectory() as scratch, progress(_STAGES) as report:
            found = run(self.only, quick=self.quick, scratch=Path(scratch), progress=report)
        for table in tables(found):
            console.print(table)
        self.out.mkdir(parents=True, exist_ok=True)
        numbers = write_json(self.out / "bench.json", found.to_json())
        say(f"{found.seconds:.0f} s. Numbers: {numbers}")
        if found.outcomes:
            say(f"Figure: {draw(found, self.out)}")
        if self.gate:
            verdict = judge(found.outcomes, known)
            for note in verdict.notes:
                warn(note)
            for regression in verdict.regressions:
                say(f"regression: {regression}")
            say(f"gate: {verdict.compared} ratios, {len(verdict.regressions)} regressions")
            if verdict.regressions:
                sys.exit(1)
