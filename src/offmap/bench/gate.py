"""The gate: ratios of this run against those of a committed baseline, never absolute seconds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offmap.bench.metrics import Outcome


@dataclass
class Verdict:
    """What the gate found: regressions fail it, notes say what could not be compared."""

    regressions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0


def read_baseline(path: Path) -> dict[str, Any]:
    """Metrics by name of an earlier run, whose JSON file is the baseline."""
    advice = "Name the JSON file of an earlier run with --baseline."
    try:
        content = json.loads(path.read_text("utf-8"))
        return {metric["name"]: metric for metric in content["metrics"]}
    except FileNotFoundError:
        raise ValueError(
            f"The gate compares with a baseline; got {path}, which is not there. {advice}"
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"A baseline holds the metrics of `offmap bench`; got {path} ({error!r}). {advice}"
        ) from None


def judge(outcomes: Sequence[Outcome], baseline: Mapping[str, Any]) -> Verdict:
    """Compare each metric's ratios to its peers and to its limit with the baseline's.

    Of the peers measured in both runs, the one whose ratio moved by the median speaks for all: a
    single peer that had a slow moment, in either run, decides nothing.
    """
    verdict = Verdict()
    for outcome in outcomes:
        name, known = outcome.metric.name, baseline.get(outcome.metric.name)
        if known is None:
            verdict.notes.append(f"{name}: not in the baseline")
            continue
        ratios, before = outcome.ratios, known["ratios"]
        moved = sorted((ratios[peer] / before[peer], peer) for peer in ratios if peer in before)
        if moved:
            _, peer = moved[len(moved) // 2]
            _compare(verdict, outcome, f"to {peer}", ratios[peer], before[peer])
        elif before:
            verdict.notes.append(f"{name}: none of the baseline's peers was measured")
        if known["limit_ratio"] is not None and outcome.limit_ratio is not None:
            _compare(verdict, outcome, "to the limit", outcome.limit_ratio, known["limit_ratio"])
    return verdict


def _compare(verdict: Verdict, outcome: Outcome, what: str, found: float, known: float) -> None:
    verdict.compared += 1
    tolerance = outcome.metric.tolerance
    if found > known * (1 + tolerance):
        verdict.regressions.append(
            f"{outcome.metric.name}: ratio {what} {found:.3g}, baseline {known:.3g}, tolerance "
            f"{tolerance:.0%}"
        )
