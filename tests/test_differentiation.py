"""What logs say of x': noise, continuous time, and errors that neighbouring samples share."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import offmap
from offmap.config import Config, stage_keys
from offmap.data import half_way, local_slopes
from offmap.differentiation import (
    corrected,
    differentiated,
    integrator_of,
    like,
    look_at,
    refined,
)
from offmap.differentiation.timing import best_timing
from offmap.dynamics import fit_dynamics
from offmap.gp import GPConfig
from offmap.pseudometric import Reduction
from offmap.rollout import rollout
from offmap.systems import Box, planar_quadrotor, unicycle

KEY = stage_keys(0).dynamics
AUTO = Config.preset("default")


def drives(system, *, fine=1, noise=0.0, hold=1, count=12, steps=25, box=None, source="offline"):
    """Drives by Euler's steps of dt, or, with `fine`, in continuous time under held controls."""
    start, control, disturb = jax.random.split(jax.random.key(0), 3)
    box = box or Box((-10.0, -10.0, -1.0), (10.0, 10.0, 1.0))
    x0 = box.sample(start, count)
    u = jnp.repeat(system.controls.sample(control, count, steps // hold), hold, axis=1)

    def follow(x, u):
        if fine == 1:
            return rollout(system.f, x, u, system.dt)
        return rollout(system.f, x, jnp.repeat(u, fine, axis=0), system.dt / fine, "rk4")[::fine]

    x = np.asarray(jax.vmap(follow)(x0, u))
    x = x + noise * np.asarray(jax.random.normal(disturb, x.shape))
    logs = [offmap.Trajectory(x[i], u[i], dt=system.dt, source=source) for i in range(count)]
    return offmap.Dataset(logs, system.state_names, system.control_names, system.angles)


def settled(dataset, config=AUTO):
    """What is tried first."""
    return differentiated(dataset, 0, KEY, config)[0]


# --- forward, half-way or smooth


def test_states_of_euler_steps_are_differenced_forward():
    data = drives(unicycle())
    told, config = settled(data)
    assert (config.derivatives, config.integrator, config.hold_out) == (
        "forward",
        "euler",
        "samples",
    )
    np.testing.assert_array_equal(told.samples().xdot, data.samples().xdot)


def test_states_in_continuous_time_are_differenced_half_way():
    told, config = settled(drives(unicycle(), fine=20))
    assert (config.derivatives, config.integrator, config.hold_out) == (
        "middle",
        "rk4",
        "samples",
    )
    assert all(log.middle is not None for log in told)


def test_noisy_states_are_smoothed_and_drives_held_out():
    system = unicycle()
    data = drives(system, noise=0.02)
    told, config = settled(data)
    assert (config.derivatives, config.integrator, config.hold_out) == (
        "smooth",
        "rk4",
        "trajectories",
    )

    def off(samples):
        true = jax.vmap(system.f)(jnp.asarray(samples.x), jnp.asarray(samples.u))
        return np.sqrt(np.mean((samples.xdot - true) ** 2, axis=0))

    assert np.all(off(told.samples()) < 0.4 * off(data.samples()))


def test_settings_that_are_given_are_kept():
    config = replace(
        AUTO, derivatives="middle", integrator="euler", hold_out="trajectories", timing=(0, 0)
    )
    told, kept = settled(drives(unicycle(), noise=0.02, count=25), config)
    assert (kept.derivatives, kept.integrator, kept.hold_out) == (
        "middle",
        "euler",
        "trajectories",
    )
    assert kept.bandwidth is None
    assert all(log.middle is not None for log in told)
    plain = Config.preset("paper")
    data = drives(unicycle(), fine=20)
    told, kept = settled(data, plain)
    assert (told is data, kept) == (True, plain)


def test_measured_derivatives_stay_as_they_are():
    data = drives(unicycle(), noise=0.02)
    measured = replace(
        data, trajectories=tuple(replace(log, xdot=log.samples()[2]) for log in data)
    )
    told, config = settled(measured)
    assert config.derivatives == "forward"
    np.testing.assert_array_equal(told.samples().xdot, data.samples().xdot)
    assert config.integrator == "auto"  # until there are dynamics to follow


def test_a_state_that_changes_evenly_is_no_noise():
    """Differences of a clock are constant but for rounding."""
    data = drives(unicycle())
    logs = [
        replace(log, x=np.c_[log.x, 7.3 * i + 0.1 * np.arange(len(log.x))])
        for i, log in enumerate(data)
    ]
    clocked = offmap.Dataset(logs, [*data.state_names, "clock"], data.control_names, data.angles)
    _, config = settled(clocked)
    assert config.derivatives == "forward"


def test_commands_are_not_timed_before_derivatives_are_told():
    assert best_timing(drives(unicycle()), "offline") == (0, 0)


# --- half-way differences, corrected


def test_what_motion_within_a_step_adds_is_told_by_the_dynamics():
    """Half-way differences miss p' = v of the quadrotor by jerk dt²/12; corrected ones do not."""
    system = planar_quadrotor()
    box = Box((-0.5, -0.5, -0.8, 0.0, -2.0, -1.0), (0.5, 0.5, 0.8, 2.0, 0.0, 1.0))
    logged = drives(system, fine=50, count=40, steps=10, box=box)
    told, config = settled(logged)
    assert config.derivatives == "middle"

    def off(data):
        samples = data.samples()
        true = jax.vmap(system.f)(jnp.asarray(samples.x), jnp.asarray(samples.u))
        return float(np.max(np.abs(samples.xdot - true)))

    everything = Reduction.everything(logged.input_names)
    settings = GPConfig(kernel="rbf+linear")
    world = fit_dynamics(told.samples(), everything, key=KEY, config=settings)
    better = corrected(told, world, logged)
    assert better is not None
    assert off(better) < 0.05 * off(told)


def test_laws_are_found_in_logs_of_continuous_time():
    """By forward differences a wheel slides by v ω dt/2, which no constraint would survive."""
    model = offmap.fit(drives(unicycle(), fine=20))
    assert [str(e).split("   ")[0] for e in model.constraints.equations] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]
    assert model.config.integrator == "rk4"
    truth = drives(unicycle(), fine=20, count=3, steps=50, box=Box((30, 30, 2), (40, 40, 3)))
    for log in truth:
        np.testing.assert_allclose(model.rollout(log.x[0], log.u), log.x, atol=1e-6)


# --- errors that neighbours share


def shaken(data, size, rng):
    """Derivatives that are off by something that changes slowly along each drive."""
    logs = []
    for log in data:
        x, u, xdot = log.samples()
        time = np.arange(len(x))[:, None] / len(x)
        waves = np.sin(2 * np.pi * (time + rng.uniform(size=(1, 3)))) * xdot.std(axis=0)
        logs.append(replace(log, x=x, u=u, xdot=xdot + size * waves))
    return replace(data, trajectories=tuple(logs))


def test_drives_are_held_out_where_errors_of_neighbours_are_alike():
    data = drives(unicycle(), hold=5, count=14)
    rng = np.random.default_rng(0)
    like_errors = shaken(data, 1.0, rng)
    assert look_at(like_errors, 0, KEY, AUTO).of_like_errors
    assert settled(like_errors)[1].hold_out == "trajectories"
    chance = [
        replace(log, xdot=xdot + 0.5 * xdot.std(axis=0) * rng.normal(size=xdot.shape))
        for log in data
        for xdot in [log.samples()[2]]
    ]
    independent = replace(data, trajectories=tuple(chance))
    assert not look_at(independent, 0, KEY, AUTO).of_like_errors
    assert settled(independent)[1].hold_out == "samples"


def test_a_long_recording_is_cut_into_stretches_where_drives_are_held_out():
    data = shaken(drives(unicycle(), hold=5, count=2, steps=300), 1.0, np.random.default_rng(0))
    told, config = settled(data, replace(AUTO, timing=(0, 0)))
    assert config.hold_out == "trajectories"
    assert len(told) >= 10
    np.testing.assert_array_equal(told.samples().x, data.samples().x)
    np.testing.assert_array_equal(told.samples().xdot, data.samples().xdot)


def test_derivatives_that_stand_for_longer_are_due_to_commands_averaged_as_long():
    rng = np.random.default_rng(0)
    data = shaken(drives(unicycle(), count=14, steps=60), 0.5, rng)
    logs = []
    for log in data:
        x, u, xdot = log.samples()
        weights = (1 - np.abs(np.arange(-3, 4) / 4) ** 3) ** 3
        blurred = [np.convolve(column, weights / weights.sum(), "same") for column in xdot.T]
        inner = slice(3, len(x) - 3)
        logs.append(replace(log, x=x[inner], u=u[inner], xdot=np.stack(blurred, 1)[inner]))
    told, config = settled(replace(data, trajectories=tuple(logs)))
    assert config.hold_out == "trajectories"
    assert config.timing is not None
    delay, width = config.timing
    assert delay == 0
    assert width in (2, 3, 4)
    turn = told.samples().u[:, 0]
    gain = turn @ told.samples().xdot[:, 2] / (turn @ turn)
    plain = np.concatenate([log.u[:, 0] for log in logs])
    attenuated = plain @ told.samples().xdot[:, 2] / (plain @ plain)
    assert abs(gain - 1) < 0.15
    assert attenuated < 0.5


def test_measured_derivatives_are_not_corrected():
    data = drives(unicycle())
    measured = replace(
        data, trajectories=tuple(replace(log, xdot=log.samples()[2]) for log in data)
    )
    everything = Reduction.everything(data.input_names)
    world = fit_dynamics(data.samples(), everything, key=KEY, config=GPConfig())
    assert corrected(measured, world, measured) is None


# --- integrators, and further data


@pytest.mark.parametrize(("fine", "expected"), [(1, "euler"), (20, "rk4")])
def test_measured_derivatives_tell_the_integrator(fine, expected):
    system = unicycle()
    data = drives(system, fine=fine)
    logs = [
        replace(
            log, xdot=np.asarray(jax.vmap(system.f)(jnp.asarray(log.x[:-1]), jnp.asarray(log.u)))
        )
        for log in data
    ]
    measured = replace(data, trajectories=tuple(logs))
    assert offmap.fit(measured).integrator == expected


@pytest.mark.parametrize(("fine", "expected"), [(1, "euler"), (20, "rk4")])
def test_noisy_states_tell_the_integrator_in_the_long_run(fine, expected):
    system = unicycle()
    rng = np.random.default_rng(0)
    clean = drives(system, fine=fine, count=24, steps=40, hold=5)
    logs = [
        replace(
            log,
            x=log.x + 0.01 * rng.normal(size=log.x.shape),
            xdot=np.asarray(jax.vmap(system.f)(jnp.asarray(log.x[:-1]), jnp.asarray(log.u))),
        )
        for log in clean
    ]
    noisy = replace(clean, trajectories=tuple(logs))
    everything = Reduction.everything(clean.input_names)
    right = replace(
        noisy, trajectories=tuple(replace(log, x=c.x) for log, c in zip(logs, clean, strict=True))
    )
    world = fit_dynamics(right.samples(), everything, key=KEY, config=GPConfig())
    assert integrator_of(world, noisy, 0) == expected


def test_further_data_are_told_as_the_first_were():
    data = drives(unicycle(), noise=0.02)
    _, config = settled(data)
    more = drives(unicycle(), noise=0.02, count=13, source="online").trajectories[12]
    angles = data.angle_indices

    def standing(x, u):
        return jnp.zeros_like(x)

    told = like(more, config, angles, standing)
    assert told.source == "online"
    assert told.middle is not None and told.seen is None
    lagging = like(more, replace(config, timing=(0, 2)), angles, standing)
    assert lagging.seen is not None
    brief = replace(more, x=more.x[:4], u=more.u[:3])
    assert like(brief, config, angles, standing).T == 3  # too short to smooth: half-way
    plain = replace(config, derivatives="forward", bandwidth=None)
    assert like(more, plain, angles, standing) is more
    model = offmap.fit(data)
    updated = model.update(more)
    assert updated.dataset.trajectories[-1].middle is not None


# --- noisy states, told again once there is a model


def test_only_what_a_model_leaves_of_noisy_states_is_smoothed():
    """Commands that jump in every step make motions that smoothing would take for noise."""
    system = unicycle()
    data = drives(system, fine=20, noise=0.01)
    _, config = settled(data)
    assert config.derivatives == "smooth" and config.bandwidth is not None

    def off(told):
        samples = told.samples()
        true = jax.vmap(system.f)(jnp.asarray(samples.x), jnp.asarray(samples.u))
        return np.sqrt(np.mean((samples.xdot - true) ** 2))

    def true(x, u):
        return np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))

    def slower(x, u):
        return 0.9 * true(x, u)

    smoothed = replace(
        data,
        trajectories=tuple(local_slopes(log, config.bandwidth, data.angle_indices) for log in data),
    )
    raw = replace(data, trajectories=tuple(half_way(log, data.angle_indices) for log in data))
    with_model = [refined(data, f, config.bandwidth, "offline") for f in (true, slower)]
    assert all(log.seen is None for log in with_model[0])
    assert off(with_model[0]) < 0.6 * off(raw)
    assert off(with_model[0]) < off(with_model[1]) < off(raw)
    jumps = replace(
        smoothed, trajectories=tuple(replace(log, seen=None) for log in smoothed)
    )  # with commands as they were given
    assert off(with_model[1]) < off(jumps)


def test_a_fit_of_noisy_states_is_told_twice():
    """The first model, of differences, and the one that is returned."""
    data = drives(unicycle(), fine=20, noise=0.003, count=16)
    said = []
    model = offmap.fit(data, progress=said.append)
    assert sum("derivatives" in sentence for sentence in said) == 1
    assert (model.config.derivatives, model.config.hold_out) == ("smooth", "trajectories")
    assert all(log.middle is not None and log.seen is None for log in model.dataset)
    assert [equation.text for equation in model.constraints.equations] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]


def test_where_smoothing_would_leave_nothing_the_closer_difference_is_taken():
    system = planar_quadrotor()
    box = Box((-0.5, -0.5, -0.8, 0.0, -2.0, -1.0), (0.5, 0.5, 0.8, 2.0, 0.0, 1.0))
    for fine, way in ((1, "forward"), (20, "middle")):
        _, config = settled(drives(system, fine=fine, noise=1e-4, count=300, steps=2, box=box))
        assert (config.derivatives, config.bandwidth) == (way, None)


# --- further sources, short logs, settings


@pytest.mark.parametrize("first", [True, False])
def test_further_sources_that_are_too_short_to_smooth_are_kept(first):
    noisy = drives(unicycle(), noise=0.02)
    short = [
        replace(log, x=log.x[:5], u=log.u[:4], source="online")
        for log in drives(unicycle(), noise=0.02, count=2)
    ]
    logs = (*short, *noisy.trajectories) if first else (*noisy.trajectories, *short)
    both = replace(noisy, trajectories=logs)
    told, config = differentiated(both, both.sources.index("offline"), KEY, AUTO)[0]
    assert (config.derivatives, len(told), set(told.sources)) == (
        "smooth",
        len(logs),
        {"offline", "online"},
    )


def test_one_short_drive_is_not_held_out_from_itself():
    told, config = settled(drives(unicycle(), noise=0.02, count=1, steps=40, hold=3))
    assert (config.derivatives, config.hold_out, len(told)) == ("smooth", "samples", 1)


def test_a_given_timing_holds_for_forward_differences_too():
    config = replace(AUTO, derivatives="forward", timing=(3, 1))
    told, _ = settled(drives(unicycle(), noise=0.02), config)
    assert all(log.seen is not None for log in told)


def test_further_sources_of_continuous_time_are_told_half_way():
    system = unicycle()
    data = drives(system, fine=20)
    measured = [
        replace(
            log, xdot=np.asarray(jax.vmap(system.f)(jnp.asarray(log.x[:-1]), jnp.asarray(log.u)))
        )
        for log in data
    ]
    online = [replace(log, source="online") for log in drives(system, fine=20, count=3)]
    told, _ = settled(replace(data, trajectories=(*measured, *online)))
    assert [log.middle is not None for log in told] == [False] * 12 + [True] * 3


def test_further_half_way_differences_are_corrected_as_the_first_were():
    system = unicycle()
    (log,) = drives(system, fine=20, count=1, hold=5)

    def f(x, u):
        return system.f(x, u)

    told = like(log, replace(AUTO, derivatives="middle", timing=(0, 0)), (2,), f)
    true = np.asarray(jax.vmap(system.f)(jnp.asarray(told.middle), jnp.asarray(told.u)))
    plain = half_way(log, (2,))
    assert np.max(np.abs(told.xdot - true)) < 1e-3 * np.max(np.abs(plain.xdot - true))


@pytest.mark.parametrize("wrong", [{"bandwidth": -1.0}, {"timing": (-1, 0)}])
def test_settings_that_mean_nothing_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}`"):
        replace(AUTO, **wrong)


def test_smoothing_that_was_asked_for_and_cannot_be_done_is_refused():
    config = replace(AUTO, derivatives="smooth")
    with pytest.raises(ValueError, match="4 steps at most"):
        differentiated(drives(unicycle(), noise=0.02, steps=4), 0, KEY, config)
    measured = [
        replace(log, xdot=log.samples()[2]) for log in drives(unicycle(), noise=0.02, steps=4)
    ]
    data = replace(drives(unicycle(), steps=4), trajectories=tuple(measured))
    told, _ = settled(data, config)  # nothing to smooth
    assert all(log.middle is None for log in told)
