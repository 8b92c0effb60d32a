"""An experiment of the paper as many cases, of which any number of workers can take their share.

A case is one trial of one fitted model, or the fit itself. Trials of the same fit belong together:
whoever runs one of them keeps its model for the next.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax

from offmap.config import Config, Preset
from offmap.constraint import fit_constraint
from offmap.data import Dataset
from offmap.paper.experiment import COLUMNS
from offmap.paper.protocol import ROWS, Experiment, Row, Trial
from offmap.types import Gamma


class AbstractStudy(ABC):
    """What a protocol, its settings and a seed determine: data, trials and constraints."""

    experiment: Experiment
    preset: Preset
    config: Config
    trials: int
    seed: int

    @property
    @abstractmethod
    def title(self) -> str:
        """The preset, and what was not told, as results are headed."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The seed, and whatever else makes results differ, as part of file names."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Dynamics / projection of every prediction."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[bool | None, ...]:
        """Which offline data sets there are: ID and OOD, or None where all rows share one."""

    @abstractmethod
    def offline(self, kind: bool | None) -> Dataset:
        """Offline data."""

    @abstractmethod
    def gammas(self, offline: Dataset) -> dict[str, Gamma | None]:
        """Constraints that models are also held to, besides their own."""

    @abstractmethod
    def trial(self, row: Row, index: int) -> Trial:
        """One online trajectory and its tests."""


@dataclass(frozen=True)
class SimulatedStudy(AbstractStudy):
    """The paper's protocol on a simulated system."""

    experiment: Experiment
    preset: Preset
    config: Config
    trials: int
    seed: int
    declare_angles: bool = True

    def __post_init__(self) -> None:
        check_trials(self.trials, 10)

    @property
    def title(self) -> str:
        """The preset, and whether angles were told."""
        return self.preset if self.declare_angles else f"{self.preset}-undeclared"

    @property
    def label(self) -> str:
        """The seed."""
        return f"seed{self.seed}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the tables, and the analytic constraint."""
        return COLUMNS

    @property
    def kinds(self) -> tuple[bool | None, ...]:
        """One data set where the boxes are the same."""
        same = self.experiment.id_box == self.experiment.ood_offline_box
        return (None,) if same else (False, True)

    def offline(self, kind: bool | None) -> Dataset:
        """Offline data."""
        key, _ = jax.random.split(jax.random.key(self.seed))
        angles = self.experiment.system.angles if self.declare_angles else ()
        return self.experiment.offline(key, out_of_distribution=bool(kind), angles=angles)

    def gammas(self, offline: Dataset) -> dict[str, Gamma | None]:
        """Γ learned from the true f, and the analytic one."""
        ideal = fit_constraint(
            self.experiment.system.f,
            offline.samples(),
            0,
            offline.state_names,
            key=jax.random.key(self.seed),
            config=self.config.constraint,
        )
        return {"ideal": ideal.gamma, "true": self.experiment.system.gamma}

    def trial(self, row: Row, index: int) -> Trial:
        """One online trajectory and its tests."""
        _, key = jax.random.split(jax.random.key(self.seed))
        return self.experiment.trial(jax.random.fold_in(key, index), row)


def check_trials(trials: int, usual: int) -> None:
    """Refuse an experiment without trials."""
    if trials < 1:
        raise ValueError(f"An experiment needs at least one trial; got {trials}. Ask for {usual}.")


@dataclass(frozen=True)
class Fit:
    """One model of a study: "GP" or "DGP", on one of its offline data sets."""

    study: AbstractStudy
    kind: bool | None
    name: str

    @property
    def where(self) -> str:
        """Which offline data."""
        return "OOD" if self.kind else "ID"

    @property
    def stem(self) -> str:
        """How names of its cases begin."""
        study = self.study
        kind = "all" if self.kind is None else self.where.lower()
        return f"{study.experiment.system.name}-{study.title}-{study.label}-{kind}-{self.name}"


@dataclass(frozen=True)
class Case:
    """One trial of a fitted model; without a row, the model itself."""

    fit: Fit
    row: Row | None = None
    index: int = 0

    @property
    def stem(self) -> str:
        """Name of its file; equal cases, and only they, have equal names."""
        if self.row is None:
            return f"{self.fit.stem}-model"
        return f"{self.fit.stem}-{self.row.key}-trial{self.index}"


def cases(study: AbstractStudy) -> dict[str, Case]:
    """All cases of a study by name."""
    found = []
    for kind in study.kinds:
        for name in ("GP", "DGP"):
            fit = Fit(study, kind, name)
            rows = [row for row in ROWS if kind is None or row.out_of_distribution == kind]
            found.append(Case(fit))
            found += [Case(fit, row, i) for row in rows for i in range(study.trials)]
    return {case.stem: case for case in found}


def fit_of(case: Case) -> Fit:
    """What cases share that belong together."""
    return case.fit
