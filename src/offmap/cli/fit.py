"""`offmap fit`: from log files to a model file."""

import time as clock
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from offmap.cli.console import check_writable, collected_warnings, progress, say, warn, write_json

if TYPE_CHECKING:
    from offmap.heldout import HeldOut
    from offmap.model import Model

_STAGES = 6


@dataclass(frozen=True)
class Fit:
    """Learn a model from log files: CSV, Parquet, NPZ, HDF5, ROS bags or MCAP.

    Example: offmap fit logs/*.csv --state px py theta --control omega v --angles theta
    --out robot.offmap
    """

    files: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files or patterns; each file is a trajectory of its own."""
    state: tuple[str, ...]
    """Columns or message fields that are states: px, or px=/odom.pose.pose.position.x"""
    control: tuple[str, ...]
    """Columns or message fields that are controls."""
    angles: tuple[str, ...] = ()
    """States that are angles, in radians."""
    time: str | None = "t"
    """Column of the time; None if rows are --dt apart; header.stamp for the clock of messages."""
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    """Of the time column, if it holds numbers; by default seconds."""
    traj: str | None = None
    """Column that tells the runs in one file apart."""
    dt: float | None = None
    """Seconds between samples; by default the rate of the slowest state."""
    max_gap: float | None = None
    """Longest pause in seconds that is interpolated; by default three steps."""
    history: int = 0
    """Past commands to use as further inputs, for actuators that lag."""
    preset: Literal["default", "paper"] = "default"
    """default: the best we know. paper: the paper's method."""
    seed: int = 0
    """Equal seeds give equal results."""
    out: Path = Path("robot.offmap")
    """The model file; the numbers of the summary go beside it as JSON."""

    def run(self) -> None:
        """Read, fit, say what was found, and save."""
        from offmap.data import read
        from offmap.data.quality import quality_warnings
        from offmap.fitting import fit
        from offmap.heldout import trajectory_errors

        _check_target(self.out)
        begin = clock.perf_counter()
        with collected_warnings() as cautions, progress(_STAGES) as report:
            report("data: reading the logs")
            dataset = read(
                self.files,
                state=self.state,
                control=self.control,
                time=self.time,
                angles=self.angles,
                traj=self.traj,
                dt=self.dt,
                time_unit=self.time_unit,
                max_gap=self.max_gap,
            )
            model = fit(dataset, self.preset, history=self.history, seed=self.seed, progress=report)
            report("held out: predicting trajectories from the others")
            errors = trajectory_errors(model)
            report("saving")
            self.out.parent.mkdir(parents=True, exist_ok=True)
            model.save(self.out)
        cautions += quality_warnings(dataset, self.history)
        seconds = clock.perf_counter() - begin
        numbers = write_json(
            self.out.with_suffix(".json"), _numbers(model, errors, cautions, seconds)
        )
        say(model.summary())
        say(_held_out(errors, model))
        for caution in cautions:
            warn(caution)
        say(f"{seconds:.0f} s. Model: {self.out}   Numbers: {numbers}")


def _check_target(out: Path) -> None:
    if out.is_dir() or out.suffix == ".json":
        raise ValueError(
            f"--out is the model file, such as robot.offmap; got {out}. Give another name."
        )
    check_writable(out)


def _held_out(errors: "dict[str, HeldOut]", model: "Model") -> str:
    """A small table of errors on trajectories left out."""
    from offmap.heldout import used_structure

    if not errors:
        return "held out    too few trajectories to leave one out: record at least three"
    first = next(iter(errors.values()))
    lines = [
        f"held out    {first.trajectories} of {len(model.dataset)} trajectories; errors as a share "
        f"of the spread: one step, rollout of {first.steps} steps"
    ]
    used = used_structure(model)
    lines += [
        f"            {name:<22} {error.one_step:.2g}, {error.rollout:.2g}"
        f"{'   (this model)' if name == used else ''}"
        for name, error in errors.items()
    ]
    return "\n".join(lines)


def _numbers(
    model: "Model", errors: "dict[str, HeldOut]", cautions: list[str], seconds: float
) -> dict[str, Any]:
    """What the summary says, for programs."""
    dataset, constraints = model.dataset, model.constraints
    metric, config = model.pseudometric, model.config
    delay, width = config.timing or (0, 0)
    return {
        "states": list(dataset.state_names),
        "controls": list(dataset.control_names),
        "angles": list(dataset.angles),
        "dt": dataset.dt,
        "trajectories": len(dataset),
        "samples": len(dataset.samples()),
        "derivatives": {
            "told": config.derivatives,
            "bandwidth": config.bandwidth,
            "delay": delay * dataset.dt,
            "width": width * dataset.dt,
        },
        "hold_out": config.hold_out,
        "integrator": model.integrator,
        "retained": asdict(model.retained),
        "weights": metric.input_weights if metric is not None and metric.diagonal else None,
        "c": constraints.c,
        "singular_values": constraints.singular_values.tolist(),
        "equations": [
            {"text": equation.text, "residual": equation.residual}
            for equation in constraints.equations
        ],
        "choices": asdict(model.choices),
        "held_out": {name: asdict(error) for name, error in errors.items()},
        "warnings": cautions,
        "seed": model.seed,
        "seconds": seconds,
    }
