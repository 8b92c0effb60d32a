"""The bench as tables on a terminal."""

from rich import box
from rich.table import Table

from offmap.bench.metrics import Outcome
from offmap.bench.run import Report


def tables(report: Report) -> list[Table]:
    """Ours against the fastest peer, the limit and each peer; the machine; who took no part."""
    found = []
    if report.outcomes:
        found.append(_summary(report.outcomes))
    if any(outcome.peers for outcome in report.outcomes):
        found.append(_by_peer(report.outcomes))
    if report.limits is not None:
        found.append(_limits(report.limits))
    if report.skipped:
        found.append(_skipped(report.skipped))
    return found


def _new(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
    return table


def _summary(outcomes: list[Outcome]) -> Table:
    columns = ("metric", "ours", "first", "fastest peer", "÷ peer", "÷ limit")
    table = _new("ours, and ours ÷ the fastest peer and ÷ the limit (below 1: ahead)", *columns)
    for outcome in outcomes:
        peer, unit = outcome.fastest_peer, outcome.metric.unit
        limit = outcome.limit_ratio
        table.add_row(
            outcome.metric.name,
            f"{_number(outcome.ours)} {unit}",
            "" if outcome.first is None else f"{_number(outcome.first)} s",
            "" if peer is None else f"{peer} {_number(outcome.peers[peer])} {unit}",
            "" if peer is None else _coloured(outcome.ratios[peer]),
            "" if limit is None else _number(limit),
        )
    return table


def _by_peer(outcomes: list[Outcome]) -> Table:
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.peers))
    table = _new("ours ÷ theirs", "metric", *names)
    for outcome in outcomes:
        if outcome.peers:
            ratios = outcome.ratios
            cells = [_coloured(ratios[name]) if name in ratios else "" for name in names]
            table.add_row(outcome.metric.name, *cells)
    return table


def _limits(limits: dict) -> Table:
    table = _new("this machine", "limit", "one core", f"all {limits['cores']} cores")
    rows = {
        "product_gflops": "matrix product, GFLOP/s",
        "memory_gbs": "memory, GB/s",
        "exp_ns": "exponential, ns",
    }
    for key, title in rows.items():
        for library in ("xla", "numpy"):
            one = limits["one"][key][library] if "one" in limits else None
            table.add_row(
                f"{title} ({library})",
                limits.get("one_skipped", "") if one is None else _number(one),
                _number(limits["all"][key][library]),
            )
    return table


def _skipped(skipped: dict[str, str]) -> Table:
    table = _new("not compared", "peer", "why")
    table.columns[1].justify = "left"
    for name, reason in skipped.items():
        table.add_row(name, reason.replace("[", r"\["))
    return table


def _coloured(ratio: float) -> str:
    return f"[{'green' if ratio <= 1 else 'red'}]{_number(ratio)}[/]"


def _number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"
