"""What all measurements share: the machine's limits, the peers, fitted models, a scratch folder."""

from functools import cached_property
from pathlib import Path
from typing import Any

from offmap.bench.limits import machine_limits
from offmap.bench.peers import AbstractPeer
from offmap.bench.problems import Problem
from offmap.bench.timing import in_new_process
from offmap.model import Model, load
from offmap.types import Progress


class Bench:
    """One run of the bench; fits and trainings are done once and shared."""

    def __init__(
        self, quick: bool, scratch: Path, peers: list[AbstractPeer], progress: Progress
    ) -> None:
        self.quick, self.scratch = quick, scratch
        self.peers, self.progress = peers, progress
        self._fits: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._trained: set[tuple[str, str]] = set()

    @cached_property
    def limits(self) -> dict[str, Any]:
        """What the machine can do, measured when first asked for."""
        self.progress("limits: matrix product, memory, exponential")
        return machine_limits(self.quick)

    @property
    def rounds(self) -> int:
        """Turns for each participant, alternately with one thread and all cores."""
        return 2 if self.quick else 6

    def fit(self, system: str, samples: int, preset: str) -> dict[str, Any]:
        """One fit of ours in a fresh process, with a compilation cache only this fit fills."""
        name = f"{system}-{samples}-{preset}"
        job = {"job": "fit", "system": system, "samples": samples, "preset": preset}
        save = self.scratch / f"{name}.offmap"
        return in_new_process(job | {"save": str(save)}, cache=self.scratch / f"jax-{name}")

    def first_fit(self, system: str, samples: int, preset: str) -> dict[str, Any]:
        """The fit that compiles everything, done once."""
        key = (system, samples, preset)
        if key not in self._fits:
            self.progress(f"fit: {system}, {samples} samples, {preset} preset, nothing compiled")
            self._fits[key] = self.fit(*key)
        return self._fits[key]

    def model(self, system: str, samples: int, preset: str) -> Model:
        """The model of that fit."""
        self.first_fit(system, samples, preset)
        return load(self.scratch / f"{system}-{samples}-{preset}.offmap")

    def trained(self, data: Problem) -> list[AbstractPeer]:
        """The peers, ready to predict.

        What a prediction costs does not depend on hyperparameters, so that peers not yet trained
        on these data are trained briefly.
        """
        for peer in self.peers:
            if (peer.name, data.name) not in self._trained:
                self.progress(f"peers: {peer.name} on {data.name} samples")
                self.train(peer, data, brief=True)
        return self.peers

    def train(self, peer: AbstractPeer, data: Problem, brief: bool = False) -> None:
        """Train one peer."""
        peer.fit(data.x, data.y, brief)
        self._trained = {pair for pair in self._trained if pair[0] != peer.name}
        self._trained.add((peer.name, data.name))
