"""Best-subset search: right equations, honest standard errors, nothing where there is nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint.dictionary import Library, discover, equation_of, inputs_of
from offmap.systems import (
    bicycle,
    planar_quadrotor,
    rolling_disk,
    slipping_unicycle,
    trailer,
    unicycle,
)


def data(system, count=400, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(count, system.n))
    u = np.asarray(system.controls.sample(jax.random.key(seed), count))
    xdot = np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    spread = xdot.std(axis=0)
    measured = xdot + noise * spread * rng.normal(size=xdot.shape)
    return x, u, measured, np.maximum(noise, 1e-5) * spread


def found(system, declared=True, **kwargs):
    x, u, xdot, noise = data(system, **kwargs)
    angles = tuple(system.state_names.index(name) for name in system.angles)
    library = Library(system.state_names, angles if declared else tuple(range(system.n)))
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    return discover(library, features, xdot, u, noise), library


def largest_angle(rows, library, system):
    x = jax.random.uniform(jax.random.key(5), (100, system.n), minval=-2.0, maxval=2.0)
    W = jnp.asarray(np.stack([row.weights for row in rows]))
    gamma = np.asarray(jax.vmap(lambda x: jnp.einsum("ckj,k->cj", W, library(x)))(x))
    true = np.asarray(jax.vmap(system.gamma)(x))
    q1 = np.linalg.qr(np.swapaxes(gamma, 1, 2))[0]
    q2 = np.linalg.qr(np.swapaxes(true, 1, 2))[0]
    cosines = np.linalg.svd(np.swapaxes(q1, 1, 2) @ q2, compute_uv=False)
    return float(np.arccos(np.clip(cosines, -1, 1)).max())


@pytest.mark.parametrize(
    "system",
    [unicycle(), planar_quadrotor(), bicycle(), trailer(), rolling_disk()],
    ids=lambda system: system.name,
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_right_number_of_rows_and_right_rows(system, noise):
    rows, library = found(system, noise=noise)
    true_c = system.gamma(jnp.zeros(system.n)).shape[0]
    assert len(rows) == true_c
    assert largest_angle(rows, library, system) < (1e-6 if noise == 0 else 2e-3)


def test_nobody_needs_to_name_the_angle():
    rows, library = found(unicycle(), declared=False)
    assert [str(equation_of(row, library).text) for row in rows] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]
    assert inputs_of(rows[0], library) == ("theta",)


def test_a_robot_that_slips_has_no_such_constraint():
    rows, _ = found(slipping_unicycle())
    assert rows == []


def test_what_a_control_can_change_is_no_constraint():
    # ȧ = b + u with noise above u's effect: at the noise level, yet a function of the control.
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(800, 2)), rng.normal(size=(800, 1))
    pushed = x[:, 1] + 0.2 * (0.3 * u[:, 0] + rng.normal(size=800))
    xdot = np.stack([pushed, rng.normal(size=800)], axis=1)
    library = Library(("a", "b"), ())
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))

    def says_something_of_a(significance):
        noise = np.array([0.2, 0.01])
        rows = discover(library, features, xdot, u, noise, significance=significance)
        return any(row.weights[:, 0].any() for row in rows)

    assert says_something_of_a(0.0), "without the test of the control it would be accepted"
    assert not says_something_of_a(1e-6)


def test_standard_errors_cover_the_truth():
    # ṗx = 0.7 vx with known noise: the error of the weight, over its standard error, is about 1.
    library = Library(("p", "v"), ())
    scores = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, u = rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
        xdot = np.stack([0.7 * x[:, 1] + 0.01 * rng.normal(size=300), u[:, 0]], axis=1)
        features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
        row = discover(library, features, xdot, u, np.array([0.01, 0.01]))[0]
        slope, error = row.weights[2, 2] / row.weights[0, 0], row.standard_errors[2, 2]
        scores.append((slope + 0.7) / error)
    assert 0.75 < np.std(scores) < 1.3
    assert abs(np.mean(scores)) < 0.5
