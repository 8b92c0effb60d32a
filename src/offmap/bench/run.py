"""One run of the bench: which measurements, on which machine, what came out."""

import importlib.metadata
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offmap.bench.bench import Bench
from offmap.bench.fits import fits, growth
from offmap.bench.metrics import Outcome
from offmap.bench.peers import AbstractPeer, all_peers, missing_modules, present
from offmap.bench.predictions import predict, rollouts
from offmap.bench.projections import OSQP_NEEDS, projection
from offmap.bench.timing import cores
from offmap.types import Progress, silent


def limits(bench: Bench) -> list[Outcome]:
    """The machine's limits, which the report carries beside the outcomes."""
    bench.limits  # noqa: B018
    return []


SUITES: dict[str, Callable[[Bench], list[Outcome]]] = {
    "limits": limits,
    "projection": projection,
    "fit": fits,
    "predict": predict,
    "rollouts": rollouts,
    "growth": growth,
}
_NOT_QUICK = ("growth",)
_LIBRARIES = (
    *("offmap", "jax", "jaxlib", "numpy"),
    *("torch", "gpytorch", "botorch", "scikit-learn", "pysindy", "osqp"),
)


@dataclass(frozen=True)
class Report:
    """What a run found."""

    outcomes: list[Outcome]
    skipped: dict[str, str]
    """Why a peer took no part."""
    limits: dict[str, Any] | None
    recipes: dict[str, str]
    """How each peer was used."""
    quick: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Everything, for programs; also what a later run's gate reads."""
        return {
            "machine": {"processor": _processor(), "cores": cores(), "system": platform.system()},
            "versions": _versions(),
            "quick": self.quick,
            "seconds": self.seconds,
            "limits": self.limits,
            "peers": self.recipes,
            "skipped": self.skipped,
            "metrics": [outcome.to_json() for outcome in self.outcomes],
        }


def run(
    names: Sequence[str],
    *,
    quick: bool,
    scratch: Path,
    progress: Progress = silent,
    peers: Sequence[AbstractPeer] | None = None,
) -> Report:
    """Measure what is named, ours and the peers in turn.

    Args:
        names: of `SUITES`; none means all, without the growth of the fit if quick.
        quick: fewer turns and smaller problems.
        scratch: folder for model files and compilation caches; empty to begin with.
        progress: called with a sentence as each part begins.
        peers: those to compare with; all by default.
    """
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise ValueError(
            f"The bench measures {', '.join(SUITES)}; got {', '.join(unknown)}. Choose of these."
        )
    chosen = names or [name for name in SUITES if not (quick and name in _NOT_QUICK)]
    taking_part, skipped = present(all_peers() if peers is None else tuple(peers))
    reason = missing_modules(OSQP_NEEDS)
    if reason is not None:
        skipped["OSQP"] = reason
    bench = Bench(quick, scratch, taking_part, progress)
    begin = time.perf_counter()
    outcomes = [outcome for name in chosen for outcome in SUITES[name](bench)]
    return Report(
        outcomes,
        skipped,
        bench.limits if "limits" in bench.__dict__ else None,
        {peer.name: peer.recipe for peer in taking_part},
        quick,
        time.perf_counter() - begin,
    )


def _versions() -> dict[str, str]:
    """Versions of what is installed of the libraries that matter here."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The processor in words, where the system tells."""
    about = Path("/proc/cpuinfo")
    if about.is_file():
        for line in about.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
