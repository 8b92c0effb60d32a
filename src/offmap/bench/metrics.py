"""What is measured, in which unit, which way is better, and how ratios are formed and judged."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Metric:
    """One quantity of the bench."""

    name: str
    unit: str
    direction: Literal["lower", "higher"]
    """Which way is better."""
    tolerance: float
    """Share by which a ratio may be worse than the baseline's: 0.5 allows half as much again."""

    def ratio(self, ours: float, reference: float) -> float:
        """How many times worse than the reference we are: below 1 is ahead, either direction."""
        return ours / reference if self.direction == "lower" else reference / ours


@dataclass(frozen=True)
class Limit:
    """What the machine, or exactness, allows at best."""

    value: float
    what: str


@dataclass(frozen=True)
class Outcome:
    """A metric as it was measured, ours beside everyone else's in the same run."""

    metric: Metric
    ours: float
    peers: dict[str, float] = field(default_factory=dict)
    limit: Limit | None = None
    first: float | None = None
    """Seconds of our first call, with tracing and compilation, which `ours` leaves out."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """Ours against every peer."""
        return {name: self.metric.ratio(self.ours, value) for name, value in self.peers.items()}

    @property
    def fastest_peer(self) -> str | None:
        """The peer that is hardest to beat."""
        return max(self.ratios, key=self.ratios.__getitem__) if self.peers else None

    @property
    def limit_ratio(self) -> float | None:
        """Ours against the limit."""
        return None if self.limit is None else self.metric.ratio(self.ours, self.limit.value)

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        content: dict[str, Any] = asdict(self.metric) | {
            "ours": self.ours,
            "peers": self.peers,
            "ratios": self.ratios,
            "fastest_peer": self.fastest_peer,
            "limit": None if self.limit is None else asdict(self.limit),
            "limit_ratio": self.limit_ratio,
            "first": self.first,
        }
        return content | ({"details": self.details} if self.details else {})


def growth_exponent(sizes: Sequence[float | int], costs: Sequence[float | int]) -> float:
    """The b of cost ≈ a·sizeᵇ, by least squares between logarithms."""
    if len(sizes) < 2 or len(sizes) != len(costs):
        raise ValueError(
            f"A growth exponent needs two sizes or more with a cost each; got {len(sizes)} sizes "
            f"and {len(costs)} costs. Measure another size."
        )
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
