"""The paper's hardware experiment on a robot anyone can run: a MuJoCo differential drive."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from offmap.config import Config, Preset
from offmap.data import (
    Alignment,
    Dataset,
    Run,
    Stream,
    Trajectory,
    align,
    history_names,
    smooth,
)
from offmap.gp import GPConfig
from offmap.paper.experiment import Result
from offmap.paper.protocol import Experiment, Row, Trial
from offmap.paper.runs import run_study
from offmap.paper.study import AbstractStudy, check_trials
from offmap.systems import Box, System, unicycle
from offmap.systems.diff_drive import Capture, DiffDrive
from offmap.types import Gamma, Progress, silent

COLUMNS = tuple(
    f"{dynamics}/{projection}"
    for dynamics in ("GP", "DGP")
    for projection in ("none", "ideal", "approx", "offline")
)
"""Ideal: the analytic constraint of the unicycle, which the robot does not quite obey."""

IDEAL: System = replace(unicycle(), name="ddr", controls=Box((-0.2, 0.0), (0.2, 0.2)))
"""The textbook's idea of the robot."""

DDR = Experiment(
    system=IDEAL,
    offline_trajectories=10,
    offline_steps=40,
    online_actions=2,
    test_actions=2,
    hold=20,
    tests=1,
    id_box=Box((-0.2, 0.05, -0.6), (0.6, 0.6, 0.8)),
    ood_offline_box=Box((-0.2, 0.05, -0.6), (0.6, 0.6, 0.8)),
    ood_online_box=Box((-0.4, 0.4, -1.5), (0.6, 1.2, 1.7)),
)
_LEAD = 1.0  # seconds of rest recorded around every drive

_NOISE_FLOOR = 0.1
"""Least noise variance of the paper's GPs on recordings, as a share of the outputs' variance."""


def hardware_config(preset: Preset) -> Config:
    """The preset as the paper sets it for hardware; steps are integrated by RK4.

    Derivatives are those of continuous time, so Euler steps would add an error of their own.
    Choices are compared on whole trajectories: errors of neighbouring samples are alike. The
    likelihood takes them for independent, so that the paper's GPs need a floor under their noise.
    """
    config = replace(Config.preset(preset), integrator="rk4", hold_out="trajectories")
    if preset == "paper":
        assert isinstance(config.dynamics, GPConfig)
        config = replace(
            config,
            dynamics=replace(config.dynamics, noise_floor=_NOISE_FLOOR),
            constraint=replace(config.constraint, kernels=("cosine",)),
        )
    return config


@dataclass(frozen=True)
class DrivenStudy(AbstractStudy):
    """The paper's hardware protocol on the robot."""

    preset: Preset
    config: Config
    trials: int
    seed: int
    history: int = 0
    """Past commands that the dynamics see as further inputs."""
    robot: DiffDrive = field(default_factory=DiffDrive)
    experiment: Experiment = DDR

    def __post_init__(self) -> None:
        check_trials(self.trials, 8)

    @property
    def title(self) -> str:
        """The preset."""
        return self.preset

    @property
    def label(self) -> str:
        """Past commands and the seed."""
        return f"history{self.history}-seed{self.seed}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the paper's table."""
        return COLUMNS

    @property
    def kinds(self) -> tuple[bool | None, ...]:
        """One data set for all rows."""
        return (None,)

    def offline(self, kind: bool | None) -> Dataset:
        """The offline drives."""
        return _session(self).offline()

    def gammas(self, offline: Dataset) -> dict[str, Gamma | None]:
        """The textbook's constraint."""
        return {"ideal": IDEAL.gamma}

    def trial(self, row: Row, index: int) -> Trial:
        """One drive."""
        return _session(self).trial(row, index)


@lru_cache(maxsize=1)
def _session(study: DrivenStudy) -> "Session":
    return Session(study.experiment, study.robot, study.seed, study.history)


def reproduce_ddr(
    preset: Preset = "paper",
    *,
    config: Config | None = None,
    trials: int = 8,
    seed: int = 0,
    experiment: Experiment = DDR,
    history: int = 0,
    progress: Progress = silent,
) -> Result:
    """Drive the robot as the paper did, fit, and predict every test; see `Result`."""
    config = config or hardware_config(preset)
    study = DrivenStudy(preset, config, trials, seed, history, experiment=experiment)
    return run_study(study, progress)


def noisy(run: Run, noise: float, rng: np.random.Generator, cutoff_hz: float) -> Trajectory:
    """Online data of a run; noise η on every state is low-passed before differencing (paper V)."""
    if noise == 0:
        return run.samples("online")
    measured = run.trajectory("online")
    states = run.x + noise * rng.normal(size=run.x.shape)
    return smooth(replace(measured, x=states), cutoff_hz=cutoff_hz)


class Session:
    """All drives of one seed, captured at 100 Hz and put onto the grid of the experiment."""

    def __init__(
        self, experiment: Experiment, robot: DiffDrive, seed: int, history: int = 0
    ) -> None:
        self.experiment, self.robot, self.seed, self.history = experiment, robot, seed, history
        rng = np.random.default_rng([seed, 0])
        starts = _draw(experiment.ood_offline_box, rng, experiment.offline_trajectories)
        actions = experiment.online_actions
        drives = [self._drive(start, actions, rng) for start in starts]
        self.aligned, self._offline = self._on_grid(drives, None)

    def offline(self) -> Dataset:
        """The offline drives, to fit to."""
        system = self.experiment.system
        return Dataset(
            [run.samples("offline") for run in self._offline],
            system.state_names,
            history_names(system.control_names, self.history),
            system.angles,
        )

    def trial(self, row: Row, index: int) -> Trial:
        """One drive: its first half is online data, its second the test; equal in all OOD rows."""
        experiment = self.experiment
        rng = np.random.default_rng([self.seed, 1 + row.out_of_distribution, index])
        box = experiment.ood_online_box if row.out_of_distribution else experiment.id_box
        steps = experiment.online_actions * experiment.hold
        drive = self._drive(
            _draw(box, rng, 1)[0], experiment.online_actions + experiment.test_actions, rng
        )
        _, (run,) = self._on_grid([drive], self.aligned)
        test = run.cut(steps, experiment.horizon)
        cutoff = 0.5 / (experiment.hold * experiment.system.dt)
        online = noisy(run.cut(0, steps), row.noise, rng, cutoff)
        return Trial(online, test.x[:1], test.u[None], test.x[None])

    def _drive(self, start: np.ndarray, actions: int, rng: np.random.Generator) -> Capture:
        experiment = self.experiment
        chosen = _draw(experiment.system.controls, rng, actions)
        controls = np.repeat(chosen, experiment.hold, axis=0)
        return self.robot.drive(start, controls, experiment.system.dt, rng, lead=_LEAD)

    def _on_grid(
        self, drives: list[Capture], known: Alignment | None
    ) -> tuple[Alignment, list[Run]]:
        """Align drives as one recording with pauses; bandwidth and lag come from offline data."""
        pause = 10.0 + max(drive.time[-1] for drive in drives)
        clock = np.concatenate([drive.time + i * pause for i, drive in enumerate(drives)])
        system = self.experiment.system
        poses = Stream(
            clock,
            np.concatenate([drive.pose for drive in drives]),
            system.state_names,
            (system.state_names.index("theta"),),
        )
        commands = np.concatenate([drive.command for drive in drives])
        found = align(
            poses,
            Stream(clock, commands, system.control_names, hold=True),
            system.dt,
            bandwidth=known.bandwidth if known else None,
            lag=known.lag if known else None,
        )
        runs = [run.with_history(self.history) for run in found.runs]
        steps = round((drives[0].time[-1] - _LEAD) / system.dt)
        return found, [_at(runs, i * pause, steps) for i in range(len(drives))]


def _at(runs: list[Run], start: float, steps: int) -> Run:
    """The stretch that begins at a time, headings within a turn of zero there."""
    for run in runs:
        first = round((start - run.start) / run.dt)
        if first >= 0 and first + steps <= run.T:
            return run.cut(first, steps).near_zero((2,))
    raise ValueError(
        f"a drive must be recorded without breaks; none of the {len(runs)} runs covers "
        f"{steps} steps from {start:.2f} s; lower the noise of the robot"
    )


def _draw(box: Box, rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(box.low, box.high, (count, len(box.low)))
