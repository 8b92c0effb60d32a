"""What the examples and benchmarks/control.py share: logs to learn from, tasks, and the true robot.

OFFMAP_SMALL=1 makes everything small, so that tests can run the examples.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import offmap
from offmap.control import MPPI
from offmap.rollout import rollout
from offmap.systems import Box, System, planar_quadrotor, unicycle
from offmap.systems.quadrotor import GRAVITY, MASS

SMALL = bool(os.environ.get("OFFMAP_SMALL"))
FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
HOVER = MASS * GRAVITY / 2  # thrust of each rotor that carries the quadrotor


@dataclass(frozen=True)
class Task:
    """Something to do with the true robot, outside the data: targets, costs and bounds."""

    name: str
    system: System
    start: tuple[float, ...]
    targets: Any
    """One row for each step of the loop and for a horizon beyond it."""
    cost: Callable[[Any, Any, Any], Any]
    low: tuple[float, ...]
    high: tuple[float, ...]
    steps: int
    dt: float
    """Between two controls; the robot itself moves in steps of `system.dt`."""
    horizon: int = 30


def logs(system: System, reach: tuple[float, ...], controls: Box, seed: int = 0) -> offmap.Dataset:
    """Drives or flights of 20 steps around the origin under random controls, without noise."""
    count, steps = (8, 10) if SMALL else (20, 20)
    start, control = jax.random.split(jax.random.key(seed))
    x0 = Box(tuple(-r for r in reach), reach).sample(start, count)
    u = controls.sample(control, count, steps)
    x = jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(x0, u)
    drives = [offmap.Trajectory(x[i], u[i], dt=system.dt) for i in range(count)]
    return offmap.Dataset(drives, system.state_names, system.control_names, system.angles)


def unicycle_logs() -> offmap.Dataset:
    """Within 5 m of the origin, heading at most 1 rad from the x-axis."""
    return logs(unicycle(), (5.0, 5.0, 1.0), Box((-1.0, 0.0), (1.0, 1.5)))


def quadrotor_logs() -> offmap.Dataset:
    """Within 1 m of the origin, tilted by at most 0.8 rad, slower than 2 m/s."""
    thrust = Box((HOVER - 0.5,) * 2, (HOVER + 0.5,) * 2)
    return logs(planar_quadrotor(), (1.0, 1.0, 0.8, 2.0, 2.0, 1.0), thrust)


def learn(data: offmap.Dataset) -> offmap.Model:
    """The default preset; made small, without its search for a kernel."""
    config = offmap.Config.preset("default")
    if SMALL:
        config = replace(config, kernels=("bilinear",), tangent=False)
    return offmap.fit(data, config=config)


def plain_gp(data: offmap.Dataset) -> offmap.Model:
    """What one would do without structure: a GP of all inputs, no constraint."""
    return offmap.fit(data, preset="paper", sparsify=False, project="none")


def parking(start: tuple[float, ...] = (25.0, -40.0, 3.0)) -> Task:
    """Drive to a place 2√2 m away, 40 m from the data and facing where no log ever did."""
    steps = 8 if SMALL else 60
    ahead = np.array([np.cos(start[2]), np.sin(start[2])])
    left = np.array([-ahead[1], ahead[0]])
    goal = np.array(start[:2]) + 2 * ahead + 2 * left
    return Task(
        "parking",
        unicycle(),
        start,
        np.tile(goal, (steps + 30, 1)),
        lambda x, u, goal: jnp.sum((x[:2] - goal) ** 2) + 0.01 * jnp.sum(u**2),
        (-1.0, 0.0),
        (1.0, 1.5),
        steps,
        0.1,
    )


def path_tracking() -> Task:
    """Follow a circle of 2 m through all headings at 1 m/s, 30 m from the data."""
    steps = 8 if SMALL else 130
    angle = 0.05 * np.arange(steps + 30)
    points = np.array([30.0, -20.0]) + 2 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=1)
    return Task(
        "path",
        unicycle(),
        (30.0, -20.3, 0.3),
        points,
        lambda x, u, point: jnp.sum((x[:2] - point) ** 2) + 0.01 * jnp.sum(u**2),
        (-1.0, 0.0),
        (1.0, 1.5),
        steps,
        0.1,
    )


def eight(t: Any) -> tuple[Any, Any]:
    """Places and velocities of a figure eight of 6 s, 5 m from the data."""
    phase, rate = 2 * np.pi * t / 6.0, 2 * np.pi / 6.0
    place = np.stack([5 + 1.2 * np.sin(phase), 5 + 0.5 * np.sin(2 * phase)], axis=-1)
    velocity = rate * np.stack([1.2 * np.cos(phase), np.cos(2 * phase)], axis=-1)
    return place, velocity


def figure_eight() -> Task:
    """Fly a figure eight, from rest."""
    steps = 6 if SMALL else 120
    targets = np.concatenate(eight(0.05 * np.arange(1, steps + 31)), axis=1)

    def cost(x, u, target):
        off = jnp.sum((x[:2] - target[:2]) ** 2)
        slow = jnp.sum((x[3:5] - target[2:]) ** 2)
        return 10 * off + slow + 0.3 * x[2] ** 2 + 0.02 * x[5] ** 2

    low, high = (HOVER - 0.5,) * 2, (HOVER + 0.5,) * 2
    start = (5.0, 5.0, 0.0, 0.0, 0.0, 0.0)
    return Task("eight", planar_quadrotor(), start, targets, cost, low, high, steps, 0.05)


@dataclass(frozen=True)
class Run:
    """What happened to the true robot."""

    states: np.ndarray
    cost: float
    solve: float
    """Median time of a solve in seconds."""
    cpu: float
    """Median CPU time of a solve, of all threads."""


def drive(
    task: Task,
    controller: Callable[[np.ndarray, int], np.ndarray],
    move: Callable[[Any, Any], Any] | None = None,
) -> Run:
    """Let a controller (state, step) → control act on the true robot, or on what `move` moves."""
    system, substeps = task.system, round(task.dt / task.system.dt)
    move = move or jax.jit(
        lambda x, u: rollout(system.f, x, jnp.tile(u, (substeps, 1)), system.dt)[-1]
    )
    x, states, cost = np.array(task.start), [np.array(task.start)], 0.0
    times = []
    for k in range(task.steps):
        began = time.perf_counter(), time.process_time()
        u = controller(x, k)
        times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        x = np.asarray(move(jnp.asarray(x), jnp.asarray(u)))
        states.append(x)
        cost += float(task.cost(x, u, task.targets[k]))
    solve, cpu = np.median(times, axis=0)
    return Run(np.array(states), cost, float(solve), float(cpu))


def mppi(task: Task, f: Any, seed: int = 0) -> Run:
    """The task under MPPI with a model, or with the truth."""
    controller = MPPI(
        f,
        task.cost,
        low=task.low,
        high=task.high,
        dt=task.dt,
        horizon=task.horizon,
        samples=64 if SMALL else 1000,
        seed=seed,
    )
    plan = controller.start()

    def act(x: np.ndarray, k: int) -> np.ndarray:
        nonlocal plan
        u, plan = controller.solve(x, plan, task.targets[k : k + task.horizon])
        return u

    return drive(task, act)


def draw_paths(ax: Any, runs: dict[str, Run]) -> None:
    """The way of each run in the plane, the truth below the others."""
    styles = ({"color": "0.75", "lw": 6}, {"color": "C0"}, {"color": "C3", "ls": "--"})
    for (name, run), style in zip(runs.items(), styles, strict=True):
        label = f"{name}: cost {run.cost:.0f}"
        ax.plot(*run.states[:, :2].T, label=label, solid_capstyle="round", **style)
