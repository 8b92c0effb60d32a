"""The kernel is chosen by extrapolation from the middle of the data to its edge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import GPConfig, choose_kernel, fit_gps
from offmap.gp.selection import _level, edge_errors, edge_points

CANDIDATES = ("linear", "cosine", "rbf")
CONFIG = GPConfig(centre=False)
N = 60


def chosen(x, y, seed, config=CONFIG):
    found = choose_kernel(x, y, CANDIDATES, key=jax.random.key(seed), config=config)
    name, scores = found.name, found.scores
    return name, scores


def line(x):
    return np.concatenate([2 * x + 0.3, -x + 4], axis=1)


def less_than_half_a_period(x):
    return np.concatenate([np.sin(0.7 * x), np.cos(0.7 * x)], axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("function", "right"), [(line, "linear"), (less_than_half_a_period, "cosine")]
)
def test_exact_data_take_the_kernel_of_their_family(function, right, seed):
    x = np.random.default_rng(seed).uniform(-2, 2, (N, 1))
    name, scores = chosen(x, function(x), seed)
    assert name == right
    assert scores[right] < 1e-6
    assert all(score > 3 * scores[right] for other, score in scores.items() if other != right)


@pytest.mark.parametrize(
    ("function", "right"), [(line, "linear"), (less_than_half_a_period, "cosine")]
)
def test_noisy_data_mostly_take_the_kernel_of_their_family(function, right):
    # Where another kernel wins it is by a hair: the right one stays at the level of the noise.
    noise, names = 0.01, []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2, 2, (N, 1))
        name, scores = chosen(x, function(x) + noise * rng.normal(size=(N, 2)), seed)
        assert scores[right] < 3 * noise
        names.append(name)
    assert names.count(right) >= 4


def test_bump_takes_the_rbf_kernel():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (N, 1))
    y = np.concatenate([np.exp(-(x**2)), x * np.exp(-(x**2))], axis=1)
    name, _ = chosen(x, y, 0)
    assert name == "rbf"


def test_most_of_a_period_takes_the_cosine_kernel():
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (N, 1)) * np.pi
    name, scores = chosen(x, np.concatenate([np.sin(x), np.cos(x)], axis=1), 0)
    assert scores["cosine"] < 1e-6
    assert name == "cosine"


def test_score_is_the_error_at_the_edge():
    x = np.linspace(-2, 2, N)[:, None]
    y = np.concatenate([x**2, x], axis=1)
    _, scores = chosen(x, y, 0)
    # The linear fit of x² without its edge is the mean over the middle; its error is known.
    edge = edge_points(x)
    miss = y[edge][:, :1] - y[~edge][:, :1].mean()
    expected = np.sqrt(np.mean(miss**2) / 2) / np.sqrt(np.mean(y[:, 0] ** 2))
    np.testing.assert_allclose(scores["linear"], expected, rtol=0.02)


def test_units_of_the_outputs_do_not_decide():
    x = np.linspace(-2, 2, N)[:, None]
    y = np.concatenate([np.exp(-(x**2)), 0.5 * x], axis=1)
    _, scores = chosen(x, y, 0, GPConfig())
    _, rescaled = chosen(x, y * [10.0, 0.1], 0, GPConfig())
    for name, score in scores.items():
        np.testing.assert_allclose(rescaled[name], score, rtol=1e-2, atol=1e-4)


def test_one_candidate_needs_no_contest():
    x = np.zeros((2, 1))
    found = choose_kernel(x, x, ("linear",), key=jax.random.key(0), config=CONFIG)
    assert found.name == "linear"


@pytest.mark.parametrize(
    ("turn", "right"), [(lambda steering: steering, "bilinear"), (np.tanh, "affine")]
)
def test_controls_alone_may_enter_by_their_product(turn, right):
    # Affine in both, these kernels would be linear; a car turns by its speed times its steering.
    steering, speed = np.random.default_rng(0).uniform([[-2], [0.3]], [[2], [1.5]], (2, 120))
    y = np.stack([speed, speed * turn(steering)], axis=1)
    found = choose_kernel(
        np.stack([steering, speed], axis=1),
        y,
        ("linear", "bilinear", "affine", "rbf+linear"),
        key=jax.random.key(0),
        config=GPConfig(),
        controls=(0, 1),
    )
    assert found.name == right
    assert found.scores[right] < 0.2 * found.scores["linear"]
    if right == "affine":
        assert found.affine_in == (1,)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("drift", "right"), [(0.0, "proportional"), (0.05, "linear")])
def test_no_command_is_no_motion_only_where_a_constant_would_explain_nothing(drift, right, seed):
    rng = np.random.default_rng(seed)
    u = rng.uniform(0.5, 1.5, (200, 2))
    y = u @ [[1.0, 0.3], [0.0, 2.0]] + drift + 0.01 * rng.normal(size=(200, 2))
    kernels = ("proportional", "linear", "rbf")
    found = choose_kernel(u, y, kernels, key=jax.random.key(0), config=GPConfig(), controls=(0, 1))
    assert found.name == right
    assert found.scores["rbf"] >= found.scores["linear"]


def test_of_few_drives_the_simplest_kernel_stays_where_one_of_them_is_against_it():
    base = np.random.default_rng(0).uniform(0.5, 1.5, 10)
    once = base + np.eye(10)[3] * 8  # one drive of ten makes the error 1.3 times as large
    errors = {"proportional": once, "linear": base, "rbf": base}
    assert _level(errors)[0] == "linear"
    assert _level(errors, by_drives=True)[0] == "proportional"
    assert _level({**errors, "proportional": 1.7 * base}, by_drives=True)[0] == "linear"
    back_to_the_mean = {"linear": once, "rbf": base}
    assert _level(back_to_the_mean) == ("rbf",)
    assert _level(back_to_the_mean, by_drives=True) == ("linear",)


def test_the_least_error_may_be_asked_for_instead():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (80, 2))
    y = x @ [[1.0], [2.0]] + 0.15 * x[:, :1] * x[:, 1:] + 0.1 * rng.normal(size=(80, 1))
    ask = {"key": jax.random.key(0), "config": GPConfig(), "controls": (0, 1)}
    simple, least = (
        choose_kernel(x, y, ("linear", "bilinear"), simplest=choice, **ask)
        for choice in (True, False)
    )
    assert simple.scores["bilinear"] < simple.scores["linear"]
    assert (simple.name, least.name) == ("linear", "bilinear")


def test_only_of_commands_is_nothing_known_to_mean_nothing():
    x = np.random.default_rng(0).uniform(1.0, 2.0, (60, 2))
    kernels = ("proportional", "linear")
    found = choose_kernel(x, x, kernels, key=jax.random.key(0), config=GPConfig(), controls=(1,))
    assert list(found.scores) == ["linear"]


def test_a_proportional_function_is_zero_at_zero_and_needs_no_constant():
    rng = np.random.default_rng(0)
    u = rng.uniform(0.8, 1.2, (50, 1))
    y = 2 * u + 0.1 * rng.normal(size=(50, 1))
    config = GPConfig(kernel="proportional")
    gps = fit_gps(u, y, np.zeros(50, dtype=int), key=jax.random.key(0), config=config)
    np.testing.assert_allclose(gps(jnp.zeros(1)), 0, atol=1e-12)
    slope = float((u * y).sum() / (u * u).sum())
    np.testing.assert_allclose(gps(jnp.array([5.0])), 5 * slope, rtol=1e-3)
    np.testing.assert_allclose(gps.noise_level() * np.sqrt(np.mean(y**2)), 0.1, rtol=0.25)


def test_rates_that_drive_each_other_take_the_quadratic_kernel():
    # Euler's equations of a turning body: products of rates, and torques.
    rng = np.random.default_rng(0)
    w, tau = rng.uniform(-2, 2, (2, 150, 3))
    y = tau + w[:, [1, 2, 0]] * w[:, [2, 0, 1]] * [0.3, -0.5, 0.2] - 0.1 * w**2
    x = np.concatenate([w, tau], axis=1)
    kernels = ("linear", "bilinear", "quadratic", "rbf+linear")
    found = choose_kernel(
        x, y, kernels, key=jax.random.key(0), config=GPConfig(), controls=(3, 4, 5)
    )
    assert found.name == "quadratic"
    assert found.scores["quadratic"] < 1e-6
    assert "rbf+linear" not in found.scores


# --- the edge


def test_edge_of_a_grid_is_its_outermost_fifth():
    order = np.random.default_rng(0).permutation(50)
    edge = edge_points(np.arange(50.0)[order][:, None])
    assert sorted(order[edge]) == [0, 1, 2, 3, 4, 45, 46, 47, 48, 49]


@pytest.mark.parametrize("scale", [1.0, [1e4, 1e-3, 1.0]])
def test_edge_points_reach_furthest_in_some_coordinate(scale):
    x = np.random.default_rng(1).normal(size=(100, 3))
    edge = edge_points(x * scale + 5.0)
    reach = np.max(np.abs(x - np.median(x, axis=0)) / x.std(axis=0), axis=1)
    assert edge.sum() == 20
    assert reach[edge].min() > reach[~edge].max()


def test_constant_column_does_not_decide_the_edge():
    x = np.stack([np.arange(20.0), np.full(20, 7.0)], axis=1)
    assert sorted(np.flatnonzero(edge_points(x))) == [0, 1, 18, 19]


def test_few_points_have_an_edge_too():
    assert edge_points(np.array([[0.0], [0.1], [9.0]])).tolist() == [False, False, True]


def test_edge_of_groups_is_whole_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(10), 30)
    x = rng.normal(size=(300, 2)) + np.where(groups == 4, 8.0, 0.0)[:, None]
    x[groups == 7] -= 9.0
    edge = edge_points(x, groups)
    assert set(groups[edge]) == {4, 7}
    assert edge.sum() == 60


def test_holding_out_groups_sees_through_noise_that_neighbours_share():
    """One input is the truth, the other tells the groups apart: only the first carries over."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(12), 20)
    truth, place = rng.normal(size=240), groups + 0.05 * rng.normal(size=240)
    y = (truth + 2.0 * rng.normal(size=12)[groups])[:, None]
    both = np.stack([truth, place], axis=1)
    candidates = [truth[:, None], both]
    config = GPConfig(hyper_points=150)
    alone, told = edge_errors(candidates, y, both, key=jax.random.key(0), config=config)
    assert told < alone
    alone, told = edge_errors(
        candidates, y, both, key=jax.random.key(0), config=config, groups=groups
    )
    assert alone < 1.05 * told


def test_going_back_to_the_mean_must_be_clearly_better():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.5, 1.5, 80)
    level = {"linear": base * 1.04**2, "bilinear": base * 1.03**2, "rbf": base}
    assert _level(level) == ("linear", "bilinear")
    assert _level({**level, "linear": base * 1.5}) == ("bilinear",)
    assert _level({name: e * (1.0 if name == "rbf" else 2.0) for name, e in level.items()}) == (
        "rbf",
    )
