"""`offmap rollout`: where a saved model goes under given controls."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from offmap.cli.console import check_writable, say


@dataclass(frozen=True)
class Rollout:
    """Predict the states that a file of controls leads to, from a start.

    Example: offmap rollout robot.offmap --start 0 0 0.5 --controls plan.csv --out states.csv
    """

    model: Annotated[Path, tyro.conf.Positional]
    """A model file, as `offmap fit` writes it."""
    start: tuple[float, ...]
    """The first state, in the order of the model's states."""
    controls: Path
    """A log in any format that has the controls; with a time column they are held onto the
    model's step, without one each row lasts one step."""
    control: tuple[str, ...] = ()
    """Columns of the controls, if they have other names there: v=/cmd_vel.linear.x"""
    time: str = "t"
    """Column of the time, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    """Of the time column, if it holds numbers; by default seconds."""
    traj: str | None = None
    """Which run of a file that holds several: run=3, by the column that tells them apart."""
    out: Path = Path("states.csv")
    """CSV for the time and the states."""

    def run(self) -> None:
        """Load, roll out, write."""
        from offmap.data.reading import read_controls
        from offmap.model import load
        from offmap.storage import replacing

        check_writable(self.out)
        model = load(self.model)
        data = model.dataset
        if len(self.start) != data.n:
            raise ValueError(
                f"--start needs {data.n} numbers, for {', '.join(data.state_names)}; got "
                f"{len(self.start)}."
            )
        controls = read_controls(
            self.controls,
            _mapping(data.control_names, self.control),
            dt=data.dt,
            time=self.time,
            time_unit=self.time_unit,
            traj=self.traj,
        )
        states = model.rollout(self.start, controls)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.out) as temporary:
            temporary.write_text(_table(data.state_names, data.dt, states), "utf-8")
        last = ", ".join(
            f"{name} {value:.6g}" for name, value in zip(data.state_names, states[-1], strict=True)
        )
        say(f"{len(controls)} steps of {data.dt:g} s end at {last}. States: {self.out}")


def _mapping(names: tuple[str, ...], given: tuple[str, ...]) -> dict[str, str]:
    """The model's controls to columns."""
    mapping = {name: name for name in names}
    for pair in given:
        name = next((name for name in names if pair.startswith(f"{name}=")), None)
        if name is None:
            raise ValueError(
                f"--control maps the model's controls {', '.join(names)}; got {pair}. Write "
                f"{names[0]}=COLUMN."
            )
        mapping[name] = pair.removeprefix(f"{name}=")
    return mapping


def _table(names: tuple[str, ...], dt: float, states: np.ndarray) -> str:
    """CSV with as many digits as it takes to read the same numbers back."""
    lines = [",".join(["t", *names])]
    for k, state in enumerate(states):
        lines.append(",".join([f"{k * dt:.12g}", *(repr(float(value)) for value in state)]))
    return "\n".join(lines) + "\n"
