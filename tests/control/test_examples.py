"""The examples run, small, and their robots go where they should."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setenv("OFFMAP_SMALL", "1")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield
    sys.modules.pop("tasks", None)


@pytest.mark.parametrize(
    "name", ["park_a_unicycle", pytest.param("fly_a_figure_eight", marks=pytest.mark.slow)]
)
def test_sampling_control_does_with_the_model_what_it_does_with_the_truth(small, name):
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    oracle, ours = (found["runs"][key] for key in ("the truth", "offmap"))
    assert ours.cost == pytest.approx(oracle.cost, rel=0.05)
    assert np.all(np.isfinite(ours.states))


def test_opti_flies_through_the_export(small):
    pytest.importorskip("casadi", reason="the export needs the extra `casadi`")
    found = runpy.run_path(str(EXAMPLES / "opti_quadrotor.py"))
    task, run = found["task"], found["run"]
    resting = sum(float(task.cost(np.array(task.start), None, goal)) for goal in task.targets[:6])
    assert run.cost < 0.9 * resting


@pytest.mark.slow
def test_the_method_predicts_where_a_plain_gp_does_not(small):
    found = runpy.run_path(str(EXAMPLES / "the_method.py"))
    off = {
        name: np.abs(states - found["true"]).max() for name, states in found["predicted"].items()
    }
    assert off["offmap"] < 1e-3 * off["plain GP"]
