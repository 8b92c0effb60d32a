"""The environment keeps Gymnasium's rules, steps as the model predicts, and ends without trust."""

import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import offmap.control
from offmap.control import ModelEnv


def reward(x, u):
    return -float(np.sum(x[:2] ** 2))


def test_environment_passes_the_checker(model):
    check_env(ModelEnv(model, reward, steps=20), skip_render_check=True)


def test_episodes_end_when_trust_runs_out(model):
    env = ModelEnv(model, reward, low=[-0.2, 0.0], high=[0.2, 10.0], least_trust=0.05)
    state, _ = env.reset(seed=0)
    for faster in np.linspace(0.0, 10.0, 50):
        before, action = state, np.array([0.0, faster / 5 - 1], np.float64)
        state, _, ended, truncated, info = env.step(action)
        assert env.observation_space.contains(state)
        assert not truncated
        expected = float(model.trust(before, np.array([0.0, faster])))
        assert info["trust"] == pytest.approx(expected)
        assert ended == (info["trust"] < 0.05)
        if ended:
            break
    assert ended
    assert faster > 1.5  # as fast as in the data


def test_episodes_end_at_the_edge_of_the_space_and_after_the_last_step(model):
    env = ModelEnv(model, reward, least_trust=0.0, reach=0.0, starts=model.dataset.samples().x[:1])
    env.reset(seed=0)
    ended, count = False, 0
    while not ended:
        state, _, ended, truncated, _ = env.step(np.ones(2, np.float32))
        assert env.observation_space.contains(state)
        count += 1
        assert truncated == (count >= 200)
    assert count > 1
    env = ModelEnv(model, reward, least_trust=0.0, steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(2, np.float32))[3] for _ in range(3)] == [False, False, True]


def test_environment_steps_as_the_model_predicts(model):
    env = ModelEnv(model, reward)
    x = np.array([0.5, 0.2, 0.3])
    env.reset(seed=0, options={"state": x})
    low, high = (getattr(model.dataset.samples().u, name)(axis=0) for name in ("min", "max"))
    state, earned, *_ = env.step(np.array([0.5, -0.5], np.float32))
    expected = x + 0.1 * model.predict(x, low + np.array([0.75, 0.25]) * (high - low))
    np.testing.assert_allclose(state, expected, atol=1e-12)
    assert earned == pytest.approx(-0.29)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": [0.0]}, "low < high"),
        ({"low": [0.0], "high": [1.0]}, "one pair for each of"),
        ({"least_trust": 1.0}, r"\[0, 1\); got 1.0"),
        ({"steps": 0}, "at least 1; got 0"),
        ({"starts": [[0.0, 0.0]]}, "states of 3 numbers"),
    ],
)
def test_environment_refuses_what_cannot_be(model, change, message):
    with pytest.raises(ValueError, match=message):
        ModelEnv(model, reward, **change)


def test_episodes_start_inside_the_space(model):
    with pytest.raises(ValueError, match="starts inside the observation space"):
        ModelEnv(model, reward).reset(options={"state": [1e9, 0.0, 0.0]})


def test_missing_gymnasium_is_said_plainly(monkeypatch):
    monkeypatch.delitem(sys.modules, "offmap.control.environment")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ModuleNotFoundError, match="extra `gym`"):
        _ = offmap.control.ModelEnv
