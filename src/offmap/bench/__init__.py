"""offmap and its peers side by side on the same data, against the machine's limits."""

from offmap.bench.gate import Verdict, judge, read_baseline
from offmap.bench.metrics import Limit, Metric, Outcome, growth_exponent
from offmap.bench.run import SUITES, Report, run

__all__ = [
    "SUITES",
    "Limit",
    "Metric",
    "Outcome",
    "Report",
    "Verdict",
    "growth_exponent",
    "judge",
    "read_baseline",
    "run",
]
